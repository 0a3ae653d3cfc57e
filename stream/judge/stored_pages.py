"""Reads pages from a judge's state directory by URL or id, for `neardup explain`.

A state directory stores fingerprint, sketch and URL of a page, not its text. The judge may be running; its
last flush is read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Self

from stream.errors import PageError, SettingsError, StateError
from stream.fingerprint.scheme import Scheme
from stream.judge.explain import ExplainedPage
from stream.judge.ids import pack
from stream.judge.live import CACHE, refuse_other_scheme
from stream.judge.meta import stored_meta
from stream.judge.state import Baseline, StateReader
from stream.messages.verdict_options import VerdictOptions
from stream.tables.store.rocks import Store, nothing_flushed, state_directory, tables_of
from stream.text.url import url_key

_ID: Final = re.compile(r"([0-9a-f]{8})\.(\d+)\.(\d+)")


class StoredPages:
    """A state directory opened for reading, as a context manager.

    Raises StateError, and SchemeMismatchError or SettingsError if its scheme or verdict options differ.
    """

    def __init__(self, path: Path, scheme: Scheme, options: VerdictOptions) -> None:
        self._url_rules = scheme.url_rules
        directory = state_directory(path)
        if directory is None:
            raise StateError(f"state directory {path}: contains no state of a judge")
        self._store = Store(directory, tables_of(directory), CACHE, read_only=True)
        try:
            self._records = StateReader(self._store, scheme)
            meta = stored_meta(self._store)
            if meta is None:
                raise nothing_flushed(directory)
            refuse_other_scheme(directory, meta, scheme)
            if meta.options != options.id:
                raise SettingsError(
                    f"state directory {directory}: has other verdict options; pass the same ones"
                    " (--mode, --option)"
                )
            self._journal = meta.journal
        except BaseException:
            self._store.close()
            raise

    def side(self, name: str) -> ExplainedPage | None:
        """Return the page with this id, or the last `unique` or `duplicate` page of this URL, or None."""
        stored: Baseline | None
        key: str | None
        if match := _ID.fullmatch(name):
            if match[1] != self._journal[:8]:
                raise SettingsError(f"id {name}: belongs to another journal than {self._journal[:8]}")
            stored = self._records.by_page(pack(int(match[2]), int(match[3])))
            key = self._key(stored.url) if stored else None
        else:
            key = self._key(name)
            stored = next(iter(self._records.baselines(key.encode())), None) if key else None
        if stored is None:
            return None
        return ExplainedPage(
            name=name,
            fingerprint=stored.fingerprint,
            url=stored.url,
            url_key=key,
            sketch=stored.sketch.astype("<u8").tobytes(),
            skipped=stored.skipped,
        )

    def _key(self, url: str) -> str | None:
        try:
            return url_key(url, self._url_rules)
        except PageError:
            return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

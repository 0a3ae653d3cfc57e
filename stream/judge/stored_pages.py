"""Reads pages from the state directory of a judge or an index, for `neardup explain`.

A state directory stores fingerprint, sketch and URL of a page, not its text. The judge may be running; its
last flush is read.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from stream.errors import PageError, SettingsError, StateError
from stream.fingerprint.scheme import Scheme
from stream.judge.explain import (
    ExplainedPage,
    StoredPage,
    StoredPair,
    explain,
    is_same_url,
    verdict_on,
)
from stream.judge.ids import pack, show
from stream.judge.live import CACHE, refuse_other_scheme
from stream.judge.meta import stored_meta
from stream.judge.rule import Rule
from stream.judge.state import Baseline, StateReader
from stream.messages.verdict_options import VerdictOptions
from stream.tables.store.anchors import DEAD
from stream.tables.store.rocks import DEFAULT, Store, state_directory, tables_of, unflushed_error
from stream.text.url import url_key

_ID: Final = re.compile(r"([0-9a-f]{8})\.(\d+)\.(\d+)")


class StoredPages:
    """A state directory opened for reading, as a context manager.

    Raises StateError, and SchemeMismatchError or SettingsError if its scheme or verdict options differ.
    """

    def __init__(self, path: Path, scheme: Scheme, options: VerdictOptions) -> None:
        self._scheme, self._options, self.path = scheme, options, path
        directory = state_directory(path)
        if directory is None:
            raise StateError(
                f"state directory {path}: contains no state of a judge to look up URLs and ids in; an index"
                " is named with --index, and a page of a file as FILE#3 or FILE#PLACE"
            )
        self._store = Store(directory, tables_of(directory), CACHE, read_only=True)
        try:
            self._records = StateReader(self._store, scheme)
            meta = stored_meta(self._store)
            if meta is None:
                raise unflushed_error(directory)
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
        if match := _ID.fullmatch(name):
            if match[1] != self._journal[:8]:
                raise SettingsError(f"id {name}: belongs to another journal than {self._journal[:8]}")
            stored = self._records.by_page(pack(int(match[2]), int(match[3])))
        else:
            stored = next(iter(self._baselines(self._key(name))), None)
        return self._side(name, stored) if stored is not None else None

    def locate(self, side: ExplainedPage) -> ExplainedPage:
        """Return a page that was read elsewhere as the stored one of its URL and content, if there is one."""
        for stored in self._baselines(side.url_key):
            if stored.fingerprint == side.fingerprint and _sketch(stored) == side.sketch:
                return replace(side, skipped=stored.skipped, stored_id=stored.page)
        return side

    def pair(self, anchor: ExplainedPage, page: ExplainedPage) -> StoredPair:
        """Return what is stored about two pages, and what counts between them here.

        A page that is a duplicate is not compared with later pages: the anchor of its cluster is.
        """
        stored, own = self._stored(anchor), self._stored(page)
        first, second = anchor.stored_id, page.stored_id
        later = first is not None and second is not None and first > second
        verdict, by_cluster = verdict_on(anchor, page, Rule(self._options, self._scheme)), None
        if stored and not later and not is_same_url(anchor, page):
            if stored.duplicate_of is not None and (head := self.side(stored.cluster)):
                named = replace(head, name=stored.duplicate_of)
                by_cluster = explain(named, page, self._scheme, self._options)
                verdict = by_cluster.verdict
            if stored.superseded and verdict == "duplicate":
                verdict = "unique"
        return StoredPair(
            directory=str(self.path),
            verdict=verdict,
            anchor=stored,
            page=own,
            later=later,
            by_cluster=by_cluster,
        )

    def _stored(self, side: ExplainedPage) -> StoredPage | None:
        if side.stored_id is None or (stored := self._records.by_page(side.stored_id)) is None:
            return None
        head = stored if stored.anchor is not None else self._records.by_page(stored.cluster)
        is_dead = head is not None and head.anchor is not None and self._is_dead(head.anchor)
        return StoredPage(
            id=show(self._journal, stored.page),
            verdict="duplicate" if stored.anchor is None else "unique",
            cluster=show(self._journal, stored.cluster),
            duplicate_of=head.url if head is not None and stored.anchor is None else None,
            superseded=is_dead,
            full_buckets=stored.skipped.bit_count(),
        )

    def _is_dead(self, anchor: int) -> bool:
        return self._store.get(DEFAULT, [DEAD + anchor.to_bytes(8, "big")])[0] is not None

    def _side(self, name: str, stored: Baseline) -> ExplainedPage:
        return ExplainedPage(
            name=name,
            fingerprint=stored.fingerprint,
            url=stored.url,
            url_key=self._key(stored.url),
            sketch=_sketch(stored),
            skipped=stored.skipped,
            stored_id=stored.page,
        )

    def _baselines(self, key: str | None) -> list[Baseline]:
        return self._records.baselines(key.encode()) if key is not None else []

    def _key(self, name: str) -> str | None:
        """Return the key of a URL; a name in an index that is no URL is its own key."""
        try:
            return url_key(name, self._scheme.url_rules)
        except PageError:
            return name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()


def _sketch(stored: Baseline) -> bytes:
    return stored.sketch.astype("<u8").tobytes()

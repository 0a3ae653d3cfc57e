"""Reads the live anchors of a state directory, which may be in use by a judge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from stream.errors import SchemeMismatchError
from stream.fingerprint.lanes import words_of
from stream.fingerprint.scheme import Scheme
from stream.judge.state.meta import Meta, stored_meta
from stream.judge.state.page_log import HEAD, PageLog, record_words
from stream.tables.arrays import U64
from stream.tables.store.anchors import Dead
from stream.tables.store.rocks import ANCHORS, Store, unflushed_error

CACHE: Final = 8 << 20
_READ: Final = 1 << 12
"""Anchors read at once with sketches and URLs."""


@dataclass(frozen=True, slots=True)
class LiveAnchors:
    """Fingerprints of the live anchors, as of the last flush."""

    fingerprints: U64
    """(n, width / 64), in the order of anchors."""
    width: int
    scheme: str
    """Id of the fingerprints' scheme."""


class LivePages(NamedTuple):
    """A chunk of n live anchors, in order."""

    fingerprints: U64
    """(n, width / 64)."""
    sketches: U64
    """(n, sketch_bytes / 8)."""
    urls: list[str]


def live_anchors(path: Path) -> LiveAnchors:
    """Read the live anchors of a state directory. Raises StateError."""
    with _opened(path) as (store, meta):
        words = words_of(meta.width)
        log = PageLog(store, ANCHORS, record_words(meta.width, meta.sketch_bytes))
        records = [group[:, HEAD : HEAD + words].copy() for group in log.scan()]
        fingerprints = np.concatenate([*records, np.zeros((0, words), np.uint64)])
        alive = ~Dead(store).test(np.arange(log.first, log.count))
        return LiveAnchors(fingerprints[alive], meta.width, meta.scheme)


def live_pages(path: Path, scheme: Scheme) -> Iterator[LivePages]:
    """Read live anchors with sketches and URLs, in chunks of some thousand.

    Raises StateError, and SchemeMismatchError if they have another scheme.
    """
    with _opened(path) as (store, meta):
        refuse_other_scheme(path, meta, scheme)
        end = HEAD + words_of(meta.width)
        log, dead = PageLog(store, ANCHORS, record_words(meta.width, meta.sketch_bytes)), Dead(store)
        for first in range(log.first, log.count, _READ):
            numbers = np.arange(first, min(first + _READ, log.count))
            pages = log.pages(numbers, keep_urls=True)
            alive = np.flatnonzero(~dead.test(numbers))
            words = pages.words[alive]
            yield LivePages(
                words[:, HEAD:end], words[:, end:], [each or "" for each in pages.urls(alive).texts()]
            )


def refuse_other_scheme(directory: Path, meta: Meta, scheme: Scheme) -> None:
    """Raise SchemeMismatchError unless a state directory has this scheme."""
    if meta.scheme != scheme.id:
        raise SchemeMismatchError(
            f"state directory {directory}: has scheme {meta.scheme}, not {scheme.id}, which has "
            f"seed_digest={scheme.seed_digest} (`neardup topics describe` shows the journal's): give its "
            "options by --scheme, its seed by --scheme seed_file=FILE (`neardup topics seed FILE`)"
        )


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Store, Meta]]:
    with Store(path, CACHE, read_only=True) as store:
        if (meta := stored_meta(store)) is None:
            raise unflushed_error(path)
        yield store, meta

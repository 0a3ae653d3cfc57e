"""`neardup match --verified`: all pairs of pages that are similar by the judge's rule, in any order.

Candidates share one of nine pairs of minima, as in the judge's tables. Unlike in the judge, all pairs of
candidates are compared: buckets are not limited in size, and duplicates are compared as well as anchors.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.errors import SettingsError
from stream.fingerprint.lanes import from_integers, to_hex, words_of
from stream.fingerprint.minima import KEY_WORDS, MINIMA_WORDS
from stream.fingerprint.parity import ONE
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.sketch import SketchPairs
from stream.judge.rule import Rule
from stream.judge.state.live import live_pages
from stream.messages.verdict_options import VerdictOptions
from stream.offline.fingerprint_match import rows_of
from stream.offline.fingerprints import is_fingerprint, open_fingerprints
from stream.offline.minima_tables import MinimaTables, PageColumns, search_all
from stream.pages.columns import NO_COLUMNS, Columns
from stream.settings import Settings
from stream.sources.compressed import is_read_once
from stream.sources.open import open_sources
from stream.sources.source import Message, Source
from stream.tables.arrays import U64
from stream.tables.store.rocks import state_directory

CHUNK: Final = 1 << 12
"""Least number of corpus pages in a chunk."""


@dataclass(frozen=True, slots=True, eq=False)
class Sketched(PageColumns):
    """n pages with their sketches: all that the rule compares."""

    sketches: U64
    """(n, sketch_bytes / 8)"""
    names: list[str]
    first: int = 0
    """Index of the first page in its file."""

    @classmethod
    def of(cls, fingerprints: U64, sketches: U64, names: list[str]) -> Sketched:
        """Pages with the minima taken from the end of each sketch."""
        return cls(
            np.ascontiguousarray(sketches[:, -MINIMA_WORDS:][:, :KEY_WORDS]), fingerprints, sketches, names
        )


@dataclass(slots=True)
class SketchedFile:
    """A file of pages with sketches. Iterating yields chunks in order, once. Raises SchemeMismatchError,
    StateError."""

    chunks: Iterator[Sketched]
    sources: Sequence[Source] = ()
    """What its pages are read from."""
    skipped: int = field(default=0)
    """Number of pages without a fingerprint read so far."""

    def __iter__(self) -> Iterator[Sketched]:
        return self.chunks


def open_sketched(
    settings: Settings,
    scheme: Scheme,
    path: str,
    *,
    source_format: str,
    base_url: str | None = None,
    columns: Columns = NO_COLUMNS,
) -> SketchedFile:
    """The pages at `path`, sketched on all cores, or the live anchors of a state directory.

    Raises SettingsError for a file of fingerprints, which has no sketches.
    """
    if not is_read_once(path) and source_format == "auto":
        directory = state_directory(Path(path)) if Path(path).is_dir() else None
        if directory is not None:
            return SketchedFile(Sketched.of(*pages) for pages in live_pages(directory, scheme))
        if open_fingerprints(path) is not None:
            raise _no_sketches(path)
    base_urls = [] if base_url is None else [base_url]
    opened = open_sources([path], format=source_format, base_urls=base_urls, columns=columns)
    messages: Iterable[Message] = chain.from_iterable(opened)
    if is_read_once(path):  # detected by the first line
        coming = iter(messages)
        first = list(islice(coming, 1))
        if first and is_fingerprint(first[0].value):
            raise _no_sketches(path)
        messages = chain(first, coming)

    def chunks() -> Iterator[Sketched]:
        for ready, skipped in rows_of(settings, scheme, opened, messages):
            file.skipped += skipped
            if ready:
                sketches = np.frombuffer(b"".join(row.sketch for row in ready), "<u8").astype(np.uint64)
                yield Sketched.of(
                    from_integers([row.fingerprint for row in ready], scheme.width),
                    sketches.reshape(len(ready), -1),
                    [row.url or "" for row in ready],
                )

    file = SketchedFile(chunks(), opened)
    return file


def _no_sketches(path: str) -> SettingsError:
    return SettingsError(
        f"source {path}: contains fingerprints alone, but --verified compares sketches, too; give the pages"
        " themselves or a state directory, or leave --verified out"
    )


class SimilarPairs(NamedTuple):
    """Pairs of a page of `pages` and one of the batch."""

    pages: Sketched
    row: NDArray[np.int64]
    """Rows of `pages`."""
    stored: NDArray[np.int64]
    """Rows of the batch."""
    distance: NDArray[np.integer[Any]]
    similarity: NDArray[np.int64]
    """In ten-thousandths."""


class Verified:
    """Finds similar pairs within a batch, or of a batch and a corpus. The batch is held in memory; pairs are
    yielded as they are found.

    Raises SettingsError, SchemeMismatchError, StateError.
    """

    def __init__(self, batch: SketchedFile, corpus: SketchedFile | None, rule: Rule, *, threads: int) -> None:
        self._rule, self._threads = rule, threads
        self._files = [batch] if corpus is None else [batch, corpus]
        self._corpus = corpus
        self._held = _all_pages(batch, rule.scheme)
        start = time.perf_counter()
        self._tables = MinimaTables(self._held, rule.scheme.width, rule.design())
        self._build_seconds = time.perf_counter() - start
        self._matched = np.zeros(len(self._held), np.bool_)
        self._scanned = 0 if corpus else len(self._held)
        self._matches = self._compared = 0
        self._scan_seconds = 0.0

    @property
    def rule(self) -> str:
        """The condition that pairs meet, for messages."""
        return f"with a similarity of at least {self._rule.least_listed / ONE:g}"

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield a record per pair as it is found; may be called once. Pairs within a batch are sorted by row,
        then the match's row; with a corpus, by the match's row, then row."""
        rule = self._rule
        for pairs in self.pairs():
            side, stored_side = _Sides(pairs.pages, pairs.row, rule), _Sides(self._held, pairs.stored, rule)
            batch, other = (side, stored_side) if self._corpus is None else (stored_side, side)
            for one, two, distance, alike in zip(
                batch, other, pairs.distance.tolist(), pairs.similarity.tolist(), strict=True
            ):
                yield one | {"distance": distance, "similarity": rule.published(alike), "match": two}

    def pairs(self) -> Iterator[SimilarPairs]:
        """Yield the same pairs in columns; one of the two may be called, once."""
        start, held, rule = time.perf_counter(), self._held, self._rule
        own = self._corpus is None
        chunks = [held] if self._corpus is None else self._numbered_chunks(self._corpus)
        for pages, matches in search_all(self._tables, chunks, self._threads, later=own):
            pairs = matches.pairs
            sketches = SketchPairs(pages.sketches, pairs.row, held.sketches, pairs.stored)
            similarity = rule.similarities(sketches)
            similar = np.flatnonzero(similarity >= rule.least(sketches))
            self._compared += matches.compared
            self._matches += len(similar)
            row, stored = pairs.row[similar], pairs.stored[similar]
            self._matched[stored] = True
            if own:
                self._matched[row] = True
            yield SimilarPairs(pages, row, stored, pairs.distance[similar], similarity[similar])
        self._scan_seconds = time.perf_counter() - start

    def summary(self) -> dict[str, Any]:
        """Counts and times of the search, complete once all records are read."""
        return {
            "batch": len(self._held),
            "corpus": self._scanned,
            "skipped": sum(file.skipped for file in self._files),
            "matches": self._matches,
            "batch_rows_matched": int(self._matched.sum()),
            "layout": self._tables.layout,
            "compared": self._compared,
            "build_seconds": round(self._build_seconds, 3),
            "scan_seconds": round(self._scan_seconds, 3),
        }

    def _numbered_chunks(self, corpus: SketchedFile) -> Iterator[Sketched]:
        """The chunks of the corpus with row numbers. Small ones, which come from pages, are concatenated."""
        small: list[Sketched] = []
        for chunk in chain(corpus, [None]):
            if chunk is not None:
                small.append(chunk)
            size = sum(map(len, small))
            if size and (chunk is None or size >= CHUNK):
                yield _concatenate(small, self._rule.scheme, self._scanned)
                self._scanned += size
                small = []


class _Sides:
    """The part of records for one side of pairs."""

    def __init__(self, pages: Sketched, rows: Any, rule: Rule) -> None:
        self._digits = to_hex(pages.fingerprints[rows], rule.scheme.width)
        self._rows, self._pages = rows.tolist(), pages

    def __iter__(self) -> Iterator[dict[str, Any]]:
        first, names = self._pages.first, self._pages.names
        for row, digits in zip(self._rows, self._digits, strict=True):
            yield {"row": first + row, "name": names[row] or None, "fingerprint": digits}


def _all_pages(file: SketchedFile, scheme: Scheme) -> Sketched:
    return _concatenate(list(file), scheme, 0)


def _concatenate(parts: list[Sketched], scheme: Scheme, first: int) -> Sketched:
    if not parts:
        empty = np.zeros((0, words_of(scheme.width)), np.uint64)
        return Sketched.of(empty, np.zeros((0, scheme.sketch_bytes // 8), np.uint64), [])
    return Sketched(
        np.concatenate([part.minima for part in parts]),
        np.concatenate([part.fingerprints for part in parts]),
        np.concatenate([part.sketches for part in parts]),
        list(chain.from_iterable(part.names for part in parts)),
        first,
    )


def default_rule(scheme: Scheme) -> Rule:
    """The rule by the default verdict options."""
    return Rule(VerdictOptions(), scheme)

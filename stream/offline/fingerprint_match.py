"""`neardup match`: finds all near pairs of a batch and a corpus of fingerprints, or within a batch."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from stream.errors import SchemeMismatchError, SettingsError
from stream.fingerprint.lanes import as_words, from_integers, to_hex, words_of
from stream.fingerprint.row import Row
from stream.fingerprint.scheme import Scheme
from stream.local.scan import fingerprint_messages
from stream.offline.all_pairs import all_pairs
from stream.offline.batch_tables import BatchTables, layout_for, match
from stream.offline.fingerprints import CHUNK, FingerprintFile, NamedFingerprints, open_fingerprints
from stream.offline.layouts import Layout
from stream.offline.pairs import Pairs
from stream.pages.columns import NO_COLUMNS, Columns
from stream.settings import Settings
from stream.sources.open import open_sources
from stream.sources.rows import RowsSource
from stream.sources.source import Message, Source
from stream.tables.arrays import U64

Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """The near pairs of a batch and a corpus."""

    pairs: Pairs
    """Batch rows and corpus rows. Both are counted from 0 over all fingerprints read."""
    batch: NamedFingerprints
    corpus: dict[int, tuple[str, str | None]]
    """Fingerprint (hex digits) and name of each corpus row that matched."""
    width: int
    distance: int
    layout: str
    compared: int
    corpus_size: int
    skipped: int
    """Pages and records without a fingerprint, in batch and corpus."""
    build_seconds: float
    scan_seconds: float

    def records(self) -> Iterator[dict[str, Any]]:
        """A record per pair, sorted by batch row, then corpus row."""
        own = to_hex(self.batch.words, self.width)
        names = self.batch.names
        for row, stored, distance in zip(
            self.pairs.row.tolist(), self.pairs.stored.tolist(), self.pairs.distance.tolist(), strict=True
        ):
            digits, name = self.corpus[stored]
            yield {
                "row": row,
                "name": names[row] or None if names else None,
                "fingerprint": own[row],
                "distance": distance,
                "match": {"row": stored, "name": name or None, "fingerprint": digits},
            }

    @property
    def rule(self) -> str:
        """The condition that pairs meet, for messages."""
        return f"with a distance of at most {self.distance}"

    def summary(self) -> dict[str, Any]:
        """Counts and times of the search."""
        return {
            "batch": len(self.batch.words),
            "corpus": self.corpus_size,
            "skipped": self.skipped,
            "matches": len(self.pairs),
            "batch_rows_matched": len(np.unique(self.pairs.row)),
            "layout": self.layout,
            "compared": self.compared,
            "build_seconds": round(self.build_seconds, 3),
            "scan_seconds": round(self.scan_seconds, 3),
        }


def open_fingerprints_or_pages(
    settings: Settings,
    scheme: Scheme,
    path: str,
    *,
    width: int | None,
    source_format: str,
    base_url: str | None = None,
    columns: Columns = NO_COLUMNS,
) -> FingerprintFile:
    """The fingerprints at `path`. If it contains pages, these are fingerprinted by `scheme` on all cores."""
    fingerprints = open_fingerprints(path, width) if source_format == "auto" else None
    if fingerprints is not None:
        return fingerprints
    base_urls = [] if base_url is None else [base_url]
    opened = open_sources([path], format=source_format, base_urls=base_urls, columns=columns)
    messages = itertools.chain.from_iterable(opened)

    def chunks() -> Iterator[NamedFingerprints]:
        for ready, skipped in rows_of(settings, scheme, opened, messages):
            file.skipped += skipped
            if ready:
                words = from_integers([row.fingerprint for row in ready], scheme.width)
                yield NamedFingerprints(words, [row.url or "" for row in ready])

    file = FingerprintFile(path, scheme.width, scheme.id, chunks(), None, opened)
    return file


def rows_of(
    settings: Settings, scheme: Scheme, sources: Sequence[Source], messages: Iterable[Message]
) -> Iterator[tuple[list[Row], int]]:
    """Yield, for each chunk of pages, the rows with a fingerprint and the number of pages without one: those
    of the messages of the sources, or the rows that the sources have."""
    for some in _chunks(settings, scheme, sources, messages):
        ready = [row for row in some if row.ready]
        yield ready, len(some) - len(ready)


def _chunks(
    settings: Settings, scheme: Scheme, sources: Sequence[Source], messages: Iterable[Message]
) -> Iterator[Sequence[Row]]:
    if isinstance(sources[0], RowsSource):
        placed = (
            each.row for source in sources if isinstance(source, RowsSource) for each in source.placed(scheme)
        )
        while some := list(itertools.islice(placed, CHUNK)):
            yield some
        return
    # The event loop runs only while a chunk is requested, so that pages are read no faster than consumed.
    with asyncio.Runner() as runner:
        rows = fingerprint_messages(settings, scheme, scheme.seed(), messages)
        try:
            while (made := runner.run(_next(rows))) is not None:
                yield made
        finally:
            runner.run(rows.aclose())


async def _next(rows: Any) -> Any:
    return await anext(rows, None)


def gather(file: FingerprintFile) -> NamedFingerprints:
    """All fingerprints of a file in one chunk."""
    parts = list(file)
    words = [np.zeros((0, words_of(file.width)), np.uint64), *(part.words for part in parts)]
    names = None
    if any(part.names is not None for part in parts):
        names = list(itertools.chain.from_iterable(part.names or [""] * len(part.words) for part in parts))
    return NamedFingerprints(np.concatenate(words), names)


def find_matches(
    batch: FingerprintFile,
    corpus: FingerprintFile,
    distance: int,
    *,
    layout: str | None = None,
    threads: int,
    advance: Advance | None = None,
) -> Matches:
    """All pairs within the distance. `advance` is called with the number of corpus fingerprints scanned so
    far.

    Raises SettingsError, and SchemeMismatchError if batch and corpus have different schemes.
    """
    if batch.width != corpus.width:
        raise SettingsError(
            f"width: {batch.name} has fingerprints of {batch.width} bits, {corpus.name} of {corpus.width}"
        )
    held = gather(batch)
    _refuse_other_scheme(batch, corpus)
    start = time.perf_counter()
    chosen = Layout.parse(layout, batch.width) if layout else None
    tables = BatchTables(held.words, batch.width, distance, chosen)
    built = time.perf_counter()
    parts: list[Pairs] = []
    named: dict[int, tuple[str, str | None]] = {}
    scanned = compared = 0
    for pairs, cost, chunk in match(tables, _large_chunks(corpus), threads):
        if len(pairs):
            parts.append(Pairs(pairs.row, pairs.stored + scanned, pairs.distance))
            rows = np.unique(pairs.stored)
            digits = to_hex(as_words(chunk.words, corpus.width)[rows], corpus.width)
            for row, text in zip(rows.tolist(), digits, strict=True):
                named[row + scanned] = text, chunk.names[row] if chunk.names else None
        scanned += len(chunk.words)
        compared += cost
        if advance is not None:
            advance(scanned)
    _refuse_other_scheme(batch, corpus)
    return Matches(
        pairs=Pairs.merge(parts),
        batch=held,
        corpus=named,
        width=batch.width,
        distance=distance,
        layout=tables.layout.name,
        compared=compared,
        corpus_size=scanned,
        skipped=batch.skipped + corpus.skipped,
        build_seconds=built - start,
        scan_seconds=time.perf_counter() - built,
    )


def find_pairs(batch: FingerprintFile, distance: int, *, layout: str | None = None, threads: int) -> Matches:
    """All pairs within a batch and within the distance, each once. Raises SettingsError."""
    held = gather(batch)
    start = time.perf_counter()
    chosen = (
        Layout.parse(layout, batch.width) if layout else layout_for(len(held.words), batch.width, distance)
    )
    pairs, compared = all_pairs(held.words, batch.width, distance, threads=threads, layout=chosen)
    rows = np.unique(pairs.stored)
    digits = to_hex(as_words(held.words, batch.width)[rows], batch.width)
    names = held.names
    return Matches(
        pairs=pairs,
        batch=held,
        corpus={
            row: (text, names[row] if names else None)
            for row, text in zip(rows.tolist(), digits, strict=True)
        },
        width=batch.width,
        distance=distance,
        layout=chosen.name,
        compared=compared,
        corpus_size=len(held.words),
        skipped=batch.skipped,
        build_seconds=0.0,
        scan_seconds=time.perf_counter() - start,
    )


def _large_chunks(file: FingerprintFile) -> Iterator[tuple[U64, NamedFingerprints]]:
    """Chunks with their fingerprints. Small ones, which come from pages, are concatenated."""
    small: list[NamedFingerprints] = []
    size = 0
    for chunk in file:
        small.append(chunk)
        size += len(chunk.words)
        if size >= CHUNK // 2:
            whole = _concatenate(small)
            yield whole.words, whole
            small, size = [], 0
    if small:
        whole = _concatenate(small)
        yield whole.words, whole


def _concatenate(chunks: list[NamedFingerprints]) -> NamedFingerprints:
    if len(chunks) == 1:
        return chunks[0]
    names = itertools.chain.from_iterable(chunk.names or [""] * len(chunk.words) for chunk in chunks)
    return NamedFingerprints(np.concatenate([chunk.words for chunk in chunks]), list(names))


WHERE: Final = "fingerprints of different schemes cannot be compared"


def _refuse_other_scheme(batch: FingerprintFile, corpus: FingerprintFile) -> None:
    if None not in (batch.scheme, corpus.scheme) and batch.scheme != corpus.scheme:
        raise SchemeMismatchError(
            f"scheme: {batch.name} has {batch.scheme}, {corpus.name} has {corpus.scheme}; {WHERE}"
        )

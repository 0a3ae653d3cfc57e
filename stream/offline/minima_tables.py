"""Finds all pairs of pages that share a bucket in a table of minima and have near fingerprints.

The judge compares a page with anchors only, and adds no anchors to full buckets. Here every two pages that
share the prefix of a table are compared. Pairs are found in the order of pages, so that they can be written
as they are found.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import numpy as np

from stream.fingerprint.lanes import as_words
from stream.offline.pairs import Pairs
from stream.offline.prefix_tables import Bounds, Entries, PrefixTables, find_slice
from stream.tables.arrays import U64
from stream.tables.design import Design

SLICE: Final = 1 << 12
"""Rows that a thread processes at a time."""
MOST_PAIRS: Final = 1 << 16
"""Pairs after which a slice ends early, between two rows, to bound memory even with large buckets."""


@dataclass(frozen=True, slots=True, eq=False)
class PageColumns:
    """The minima and fingerprints of n pages."""

    minima: U64
    """(n, W): the keys of a design's tables."""
    fingerprints: U64
    """(n, lanes)"""

    def __len__(self) -> int:
        return len(self.minima)


class SliceMatches(NamedTuple):
    """The pairs of a range of query rows, and the number of comparisons."""

    pairs: Pairs
    """Query rows (row) and indexed rows (stored), sorted by row, then stored."""
    compared: int
    end: int
    """End of the range of query rows that was processed."""


class MinimaTables:
    """Pages indexed by the prefixes of their minima in the tables of a `design`. Raises SettingsError."""

    def __init__(self, indexed: PageColumns, width: int, design: Design) -> None:
        self.layout: Final = f"{design.tables} pairs"
        """Name of the tables' layout."""
        entries = Entries(
            np.ascontiguousarray(indexed.minima), np.ascontiguousarray(as_words(indexed.fingerprints, width))
        )
        self._tables: Final = PrefixTables.of(entries, design.prefix_masks, width)

    def search(self, pages: PageColumns, first: int, end: int, *, later: bool) -> SliceMatches:
        """The pairs of the query rows `first` to `end`, or of fewer rows if these have MOST_PAIRS.

        `later` is for tables made of `pages` itself. It finds each pair once, with the greater indexed row.
        """
        entries = Entries(np.ascontiguousarray(pages.minima), np.ascontiguousarray(pages.fingerprints))
        near, reached = find_slice(self._tables, entries, (first, end), Bounds(later, MOST_PAIRS))
        row, stored, distance = near.pairs()
        order = np.lexsort((stored, row))
        return SliceMatches(Pairs(row[order], stored[order], distance[order]), near.compared, reached)


Query = TypeVar("Query", bound=PageColumns)


def search_all(
    tables: MinimaTables, chunks: Iterable[Query], threads: int, *, later: bool = False
) -> Iterator[tuple[Query, SliceMatches]]:
    """Find the pairs of all pages of the chunks on `threads` threads. Yields each chunk with the pairs of a
    range of its rows, in order. `later` is as in `MinimaTables.search`."""

    def slices() -> Iterator[tuple[Query, int, int]]:
        for chunk in chunks:
            for first in range(0, len(chunk), SLICE):
                yield chunk, first, min(first + SLICE, len(chunk))

    def search(chunk: Query, first: int, end: int) -> tuple[Query, int, SliceMatches]:
        return chunk, end, tables.search(chunk, first, end, later=later)

    with ThreadPoolExecutor(threads, thread_name_prefix="match") as pool:
        under_way: deque[Future[tuple[Query, int, SliceMatches]]] = deque()
        coming, exhausted = slices(), False
        while under_way or not exhausted:
            while not exhausted and len(under_way) <= threads:
                if (some := next(coming, None)) is None:
                    exhausted = True
                else:
                    under_way.append(pool.submit(search, *some))
            if under_way:
                chunk, end, matches = under_way.popleft().result()
                if matches.end < end:  # the rest of the slice comes before all others
                    under_way.appendleft(pool.submit(search, chunk, matches.end, end))
                yield chunk, matches

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

from stream.compiled import compiled
from stream.fingerprint.distance_compiled import hamming_distance
from stream.offline.batch_tables import BatchTables, hash_prefix, met_first
from stream.offline.layouts import Layout
from stream.tables.arrays import I64, U8, U32, U64
from stream.tables.design import Design
from stream.tables.fingerprint_lanes import Pairs, as_words

SLICE: Final = 1 << 12
"""Rows that a thread processes at a time."""
MOST_PAIRS: Final = 1 << 16
"""Pairs after which a slice ends early, between two rows, to bound memory even with large buckets."""
_ONE: Final = np.uint64(1)
_SIX: Final = np.uint64(6)
_LOW: Final = np.uint64(63)


@dataclass(frozen=True, slots=True, eq=False)
class PageColumns:
    """The minima and fingerprints of n pages."""

    minima: U64
    """(n,)"""
    fingerprints: U64
    """(n, lanes)"""

    def __len__(self) -> int:
        return len(self.minima)


class SliceMatches(NamedTuple):
    """The pairs of a range of query rows."""

    pairs: Pairs
    """Query rows (row) and indexed rows (stored), sorted by row, then stored."""
    compared: int
    end: int
    """End of the range of query rows that was processed."""


class MinimaTables(BatchTables):
    """Pages indexed by the prefixes of their minima in the tables of a `design`. Raises SettingsError."""

    def __init__(self, filed: PageColumns, width: int, distance: int, design: Design) -> None:
        super().__init__(filed.minima, design.width, 0, Layout.choose(design.blocks, design.choose))
        self._prints: Final = np.ascontiguousarray(as_words(filed.fingerprints, width))
        self._within: Final = distance

    def search(self, asked: PageColumns, first: int, end: int, *, later: bool) -> SliceMatches:
        """The pairs of the query rows `first` to `end`, or of fewer rows if these have MOST_PAIRS.

        `later` is for tables made of `asked` itself. It finds each pair once, with the greater indexed row.
        """
        row, stored, apart, compared, reached = _meet(
            np.ascontiguousarray(asked.minima.reshape(-1, 1)), np.ascontiguousarray(asked.fingerprints),
            self.batch, self._prints, self.layout.masks, self._slot_shift, self._bucket_shift,
            self._seen, self._first, self._hashes, self._rows, self._within, first, end, later, MOST_PAIRS,
        )  # fmt: skip
        order = np.lexsort((stored, row))
        return SliceMatches(Pairs(row[order], stored[order], apart[order]), compared, reached)


Asked = TypeVar("Asked", bound=PageColumns)


def search_all(
    tables: MinimaTables, chunks: Iterable[Asked], threads: int, *, later: bool = False
) -> Iterator[tuple[Asked, SliceMatches]]:
    """Find the pairs of all pages of the chunks on `threads` threads. Results are in order."""

    def slices() -> Iterator[tuple[Asked, int, int]]:
        for chunk in chunks:
            for first in range(0, len(chunk), SLICE):
                yield chunk, first, min(first + SLICE, len(chunk))

    def search(chunk: Asked, first: int, end: int) -> tuple[Asked, int, SliceMatches]:
        return chunk, end, tables.search(chunk, first, end, later=later)

    with ThreadPoolExecutor(threads, thread_name_prefix="match") as pool:
        under_way: deque[Future[tuple[Asked, int, SliceMatches]]] = deque()
        coming, exhausted = slices(), False
        while under_way or not exhausted:
            while not exhausted and len(under_way) <= threads:
                if (some := next(coming, None)) is None:
                    exhausted = True
                else:
                    under_way.append(pool.submit(search, *some))
            if under_way:
                chunk, end, met = under_way.popleft().result()
                if met.end < end:  # the rest of the slice comes before all others
                    under_way.appendleft(pool.submit(search, chunk, met.end, end))
                yield chunk, met


@compiled
def _meet(
    minima: U64,
    prints: U64,
    filed: U64,
    filed_prints: U64,
    masks: U64,
    slot_shift: np.uint64,
    bucket_shift: np.uint64,
    seen: U64,
    first: U32,
    hashes: U64,
    rows: U32,
    distance: int,
    begin: int,
    end: int,
    later: bool,
    most: int,
) -> tuple[I64, I64, U8, int, int]:
    """Query rows, indexed rows and distances of the pairs (m,), each pair once; the number of comparisons;
    and the row at which the search ended, which is `end` unless there were `most` pairs."""
    row, stored, apart = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.uint8)
    found = compared = 0
    for each in range(begin, end):
        if found >= most:
            return row[:found], stored[:found], apart[:found], compared, each
        for table in range(len(masks)):
            hashed = hash_prefix(minima, each, masks[table])
            slot = hashed >> slot_shift
            if not seen[table, slot >> _SIX] >> (slot & _LOW) & _ONE:
                continue
            bucket = hashed >> bucket_shift
            for place in range(first[table, bucket], first[table, bucket + _ONE]):
                if hashes[table, place] != hashed:
                    continue
                held = np.int64(rows[table, place])
                if later and held <= each:
                    continue
                compared += 1
                bits = hamming_distance(prints, each, filed_prints, held)
                if bits > distance or not met_first(minima[each], filed[held], masks, table):
                    continue
                if found == len(row):
                    more_rows, more_stored = np.empty(2 * found, np.int64), np.empty(2 * found, np.int64)
                    more_apart = np.empty(2 * found, np.uint8)
                    more_rows[:found], more_stored[:found] = row, stored
                    more_apart[:found] = apart
                    row, stored, apart = more_rows, more_stored, more_apart
                row[found], stored[found], apart[found] = each, held, bits
                found += 1
    return row[:found], stored[:found], apart[:found], compared, end

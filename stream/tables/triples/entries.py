"""The entries of anchors in triples, seen as the anchors of an index of their own.

Entries are numbered in the order of their anchors, and of an anchor by its triples. They are not stored:
which there are follows from the masks of the anchors, and their keys from the anchor log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from stream.compiled import compiled, popcount
from stream.fingerprint.scheme import MINIMA_WORDS
from stream.tables.arrays import I64, U32, U64
from stream.tables.store.anchors import AnchorLog, NumberSet, Skips, StoredAnchors
from stream.tables.triples.keys import PAIRS, TRIPLES, prefix_of_triple

READ_AT_ONCE: Final = 1 << 18
"""Entries per slice; they take 10 MiB."""
_PAIRS: Final = np.uint64(PAIRS)


class Holders:
    """The anchors that are in triples, ascending, and their entries. Entries are numbered from `first` on,
    anchors from `first_anchor` on."""

    def __init__(self, first_anchor: int, first: int) -> None:
        self.first: Final = first
        self._first_anchor = first_anchor
        self.of_entries: U32 = np.zeros(1 << 10, np.uint32)
        """The anchor of each entry, both relative to the first one; has room for more."""
        self._columns: I64 = np.zeros((3, 1 << 10), np.int64)
        self._size = 0

    def add(self, anchors: I64, masks: U64) -> None:
        """Add anchors (k,), ascending and greater than all of before, by their masks (k,) of pairs and
        triples. Those in no triple are left out."""
        triples = masks >> _PAIRS
        some = np.flatnonzero(triples)
        end = self._size + len(some)
        if end > self._columns.shape[1]:
            grown = np.zeros((3, 2 * end), np.int64)
            grown[:, : self._size] = self._columns[:, : self._size]
            self._columns = grown
        added, before = self._columns[:, self._size : end], self.count
        counts = np.bitwise_count(triples[some])
        added[0], added[1] = anchors[some], triples[some].astype(np.int64)
        added[2] = before + np.cumsum(counts, dtype=np.int64)
        start = before - self.first
        entries = start + int(counts.sum())
        if entries > len(self.of_entries):
            self.of_entries = np.resize(self.of_entries, 2 * entries)
        self.of_entries[start:entries] = np.repeat(anchors[some] - self._first_anchor, counts)
        self._size = end  # set last, as other threads read the entries below it

    @property
    def count(self) -> int:
        """Number of entries ever added, which is the number of the next one."""
        return int(self._columns[2, self._size - 1]) if self._size else self.first

    def columns(self) -> tuple[I64, I64, I64]:
        """The anchors, the bit masks of their triples, and the ends of their entries. May be called by any
        thread."""
        size = self._size
        anchors, triples, ends = self._columns[:, :size]
        return anchors, triples, ends

    def last_entry_of(self, anchors: I64) -> I64:
        """The last entry (n,) of an anchor up to each of these (n,); that before the first one for none."""
        holders, _, ends = self.columns()
        return np.append(self.first - 1, ends - 1)[np.searchsorted(holders, anchors, "right")]

    def entries_of(self, anchors: I64) -> tuple[I64, I64]:
        """The entries (m,) of distinct anchors (k,), and the index of each one's anchor (m,)."""
        holders, triples, ends = self.columns()
        place = np.searchsorted(holders, anchors)
        index = np.flatnonzero(holders.take(place, mode="clip") == anchors) if len(holders) else place[:0]
        place = place[index]
        counts = np.bitwise_count(triples[place]).astype(np.int64)
        first = np.repeat(ends[place] - np.cumsum(counts), counts)
        return first + np.arange(len(first)), np.repeat(index, counts)


class EntryLog:
    """The rows (n, W + 2) of entries: that of the anchor, with the triple's prefix before the fingerprint."""

    def __init__(self, log: AnchorLog, holders: Holders) -> None:
        self._log, self._holders = log, holders
        self.first: Final = holders.first
        """Number of the first entry."""

    @property
    def count(self) -> int:
        """Number of entries ever added, which is the number of the next one."""
        return self._holders.count

    def slices(self, start: int, end: int) -> Iterator[tuple[int, U64]]:
        """The entries [start, end) in slices, as (number of the first, rows)."""
        for first in range(start, end, READ_AT_ONCE):
            yield first, self._read(first, min(first + READ_AT_ONCE, end))

    def _read(self, start: int, end: int) -> U64:
        anchors, triples, ends = self._holders.columns()
        low, high = np.searchsorted(ends, [start, end - 1], "right")
        of = slice(low, high + 1)
        rows = rows_of_entries(self._log.take(anchors[of]), triples[of].astype(np.uint64))
        before = int(ends[low - 1]) if low else self.first
        return rows[start - before : end - before]


class NoSkips:
    """The anchors that are kept out of full buckets, where there are none."""

    def entries(self, start: int, end: int) -> Skips:
        """None of the anchors [start, end)."""
        return Skips(np.zeros(0, np.int64), np.zeros(0, np.uint64))

    def masks(self, start: int, end: int) -> None:
        """No masks."""


class Entries:
    """The entries of a store's anchors, as an index has its anchors."""

    def __init__(self, anchors: StoredAnchors) -> None:
        first, end = anchors.log.first, anchors.log.count
        self.holders: Final = Holders(first, anchors.first_entry)
        self.holders.add(*anchors.skipped.entries(first, end))
        self.log: Final = EntryLog(anchors.log, self.holders)
        self.dead: Final = NumberSet(self.log.first)
        self.skipped: Final = NoSkips()


@compiled
def rows_of_entries(rows: U64, triples: U64) -> U64:
    """The rows (m, W + 2) of the entries of n anchors: by their rows (n, W + 1), and bit masks of their
    triples (n,)."""
    one, at, entries = np.uint64(1), 0, np.int64(0)
    for mask in triples:
        entries += popcount(mask)
    made = np.empty((entries, MINIMA_WORDS + 2), np.uint64)
    for row in range(len(rows)):
        for triple in range(TRIPLES):
            if triples[row] >> np.uint64(triple) & one:
                made[at, :MINIMA_WORDS] = rows[row, :MINIMA_WORDS]
                made[at, MINIMA_WORDS] = prefix_of_triple(rows, row, triple)
                made[at, MINIMA_WORDS + 1] = rows[row, MINIMA_WORDS]
                at += 1
    return made

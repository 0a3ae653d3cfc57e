"""The entries of anchors in reserves, seen as the anchors of an index of their own.

Entries are numbered in the order of their anchors, and of an anchor by its reserves. They are not stored:
which there are follows from the masks of the anchors, and their keys from minima that stand beside these.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from stream.compiled import compiled, popcount
from stream.fingerprint.minima import KEY_WORDS
from stream.tables.arrays import I64, U32, U64
from stream.tables.reserves.keys import PAIRS, RESERVES, prefix_of_reserve
from stream.tables.search.pair_collector import MOST_ANCHORS
from stream.tables.store.anchors import NumberSet, Skips, StoredAnchors

READ_AT_ONCE: Final = 1 << 18
"""Entries per slice; they take 10 MiB."""
_PAIRS: Final = np.uint64(PAIRS)


class _Columns(NamedTuple):
    """k anchors that are in reserves, ascending."""

    anchors: I64
    reserves: I64
    """Bit masks of their reserves."""
    ends: I64
    """The ends of their entries."""


class Holders:
    """The anchors that are in reserves, ascending, and their entries. Entries are numbered in order, and are
    removed from the first one on.

    One thread changes it. Others may call `columns` at the same time.
    """

    def __init__(self, first_anchor: int, first: int) -> None:
        self.first = first
        """Number of the first entry that is here."""
        self.first_anchor: int = first_anchor
        """What anchors in `of_entries` are relative to."""
        self.of_entries: U32 = np.zeros(1 << 10, np.uint32)
        """The anchor of each entry, from the first one on; has room for more."""
        self.count = first
        """Number of entries ever added, which is the number of the next one."""
        self._room: I64 = np.zeros((3, 1 << 10), np.int64)
        self._start = 0
        # Views of the room, replaced as a whole.
        self._held = _Columns(*self._room[:, :0])

    def add(self, anchors: I64, masks: U64) -> None:
        """Add anchors (k,), ascending and greater than all of before, by their masks (k,) of pairs and
        reserves. Those in no reserve are left out."""
        reserves = masks >> _PAIRS
        some = np.flatnonzero(reserves)
        held = len(self._held.anchors)
        if not held and len(some):
            self.first_anchor = int(anchors[some[0]])
        if self._start + held + len(some) > self._room.shape[1]:
            room = np.zeros((3, 2 * (held + len(some))), np.int64)
            room[:, :held] = self._held
            self._room, self._start = room, 0
        end = self._start + held + len(some)
        added = self._room[:, end - len(some) : end]
        counts = np.bitwise_count(reserves[some])
        added[0], added[1] = anchors[some], reserves[some].astype(np.int64)
        added[2] = self.count + np.cumsum(counts, dtype=np.int64)
        start = self.count - self.first
        entries = start + int(counts.sum())
        if entries > len(self.of_entries):
            self.of_entries = np.resize(self.of_entries, 2 * entries)
        self.of_entries[start:entries] = np.repeat(anchors[some] - self.first_anchor, counts)
        self.count += entries - start
        self._held = _Columns(*self._room[:, self._start : end])

    def remove(self, first: int) -> None:
        """Remove the entries before `first`."""
        gone = int(np.searchsorted(self._held.ends, first, "right"))
        self._start += gone
        self._held = _Columns(*(column[gone:] for column in self._held))
        if 2 * self._start > self._room.shape[1]:  # frees the memory
            self._room, self._start = np.array(self._held), 0
            self._held = _Columns(*self._room)
        anchors = self.of_entries[first - self.first : self.count - self.first]
        by = int(self._held.anchors[0]) - self.first_anchor if len(self._held.anchors) else 0
        self.of_entries = np.resize(anchors - np.uint32(by), max(1 << 10, 2 * len(anchors)))
        self.first, self.first_anchor = first, self.first_anchor + by

    def columns(self) -> _Columns:
        """The anchors and their entries. May be called by any thread."""
        return self._held

    def first_entry_from(self, anchor: int) -> int:
        """The first entry of the first of these anchors that is not before `anchor`; the number of the next
        entry if there is none."""
        anchors, reserves, ends = self._held
        place = int(np.searchsorted(anchors, anchor))
        if place == len(anchors):
            return self.count
        return int(ends[place]) - int(reserves[place]).bit_count()

    def anchor_of(self, entry: int) -> int | None:
        """The anchor of an entry; None if there is no such entry yet."""
        anchors, _, ends = self._held
        place = int(np.searchsorted(ends, entry, "right"))
        return int(anchors[place]) if place < len(anchors) else None

    def entries_of(self, anchors: I64) -> tuple[I64, I64]:
        """The entries (m,) of distinct anchors (k,), and the index of each one's anchor (m,)."""
        holders, reserves, ends = self._held
        place = np.searchsorted(holders, anchors)
        index = np.flatnonzero(holders.take(place, mode="clip") == anchors) if len(holders) else place[:0]
        place = place[index]
        counts = np.bitwise_count(reserves[place]).astype(np.int64)
        first = np.repeat(ends[place] - np.cumsum(counts), counts)
        return first + np.arange(len(first)), np.repeat(index, counts)


class EntryLog:
    """The rows (n, W + 2) of entries: that of the anchor, with the reserve's prefix before the
    fingerprint."""

    def __init__(self, anchors: StoredAnchors, holders: Holders) -> None:
        self._anchors, self._holders = anchors, holders
        self.first = holders.first
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
        anchors, reserves, ends = self._holders.columns()
        low, high = np.searchsorted(ends, [start, end - 1], "right")
        of = slice(low, high + 1)
        rows, further = self._anchors.log.take(anchors[of]), self._anchors.skipped.further(anchors[of])
        made = rows_of_entries(rows, further, reserves[of].astype(np.uint64))
        before = int(ends[low]) - int(reserves[low]).bit_count()
        return made[start - before : end - before]


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
        self._anchors = anchors.log
        self.holders: Final = Holders(first, anchors.first_entry)
        self.holders.add(*anchors.skipped.entries(first, end))
        self.log: Final = EntryLog(anchors, self.holders)
        self.dead: Final = NumberSet(self.log.first)
        self.skipped: Final = NoSkips()

    def raise_first(self, anchor: int) -> int:
        """Let the entries begin with those of `anchor` or later. Returns the number of the first one."""
        first = self.holders.first_entry_from(anchor)
        self.dead.raise_first(first)
        self.log.first = first
        return first

    def trim(self, unread: int) -> None:
        """Free the memory of the entries before the first one, if they are many and before `unread`."""
        end, holders = min(unread, self.log.first), self.holders
        is_far = self._anchors.count - holders.first_anchor > MOST_ANCHORS // 2
        if end - holders.first > (0 if is_far else (holders.count - holders.first) // 2):
            holders.remove(end)


@compiled
def rows_of_entries(rows: U64, further: U64, reserves: U64) -> U64:
    """The rows (m, W + 2) of the entries of n anchors: by their rows (n, W + 1), the words of their further
    minima, and bit masks of their reserves (n,)."""
    one, at, entries = np.uint64(1), 0, np.int64(0)
    for mask in reserves:
        entries += popcount(mask)
    made = np.empty((entries, KEY_WORDS + 2), np.uint64)
    minima = np.empty((1, KEY_WORDS + further.shape[1]), np.uint64)
    for row in range(len(rows)):
        minima[0, :KEY_WORDS], minima[0, KEY_WORDS:] = rows[row, :KEY_WORDS], further[row]
        for reserve in range(RESERVES):
            if reserves[row] >> np.uint64(reserve) & one:
                made[at, :KEY_WORDS] = rows[row, :KEY_WORDS]
                made[at, KEY_WORDS] = prefix_of_reserve(minima, 0, reserve)
                made[at, KEY_WORDS + 1] = rows[row, KEY_WORDS]
                at += 1
    return made

"""Collects the pairs that the tiers find, and sorts them into one result."""

from __future__ import annotations

from typing import Final

import numpy as np

from stream.compiled import compiled, popcount
from stream.tables.arrays import I64, U8, U64, distinct

MANY: Final = 1 << 14
"""Number of pairs from which a bitmap replaces sorting, if anchor numbers are as dense as those of spam."""
_NONE: Final = np.zeros(0, np.uint64)
_ROW: Final = np.uint64(40)
_ANCHOR: Final = np.uint64(8)
_NUMBER: Final = np.uint64(0xFFFFFFFF)
_DISTANCE: Final = np.uint64(0xFF)
MOST_ANCHORS: Final = (1 << 32) - 2
"""Most anchors from the first one on, dead ones included. Pairs have 32 bits for the number of one, relative
to the first."""


class PairCollector:
    """Pairs in the order in which they are found, with repetitions; about `most` at most.

    Packed pairs have the numbers of anchors relative to `first`, in 32 bits.
    """

    def __init__(self, most: int, first: int = 0) -> None:
        self._packed: list[U64] = []
        self.first: Final = first
        self.room = most
        """Number of further pairs allowed. A loop may stop once it has found as many."""

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached, so that pairs may be missing."""
        return self.room <= 0

    def add_packed(self, pairs: U64) -> None:
        """Add pairs, packed as row << 40 | (anchor - first) << 8 | distance, with row < 2**24."""
        if len(pairs):
            self._packed.append(pairs)
            self.room -= len(pairs)

    def packed(self) -> U64:
        """Remove and return all pairs, packed, with repetitions."""
        packed = self._packed[0] if len(self._packed) == 1 else np.concatenate([*self._packed, _NONE])
        self._packed = []
        return packed

    def pairs(self) -> tuple[I64, I64, U8]:
        """Remove and return all pairs: rows, anchors and distances, distinct, sorted by row, then anchor."""
        return ordered_pairs(self.packed(), self.first)


def ordered_pairs(packed: U64, first: int) -> tuple[I64, I64, U8]:
    """Packed pairs as rows, anchors and distances, distinct, sorted by row, then anchor."""
    if len(packed) > MANY:
        ordered = in_order(packed, first)
        if ordered is not None:
            return ordered
    packed = distinct(packed)
    return (
        (packed >> _ROW).astype(np.int64),
        (packed >> _ANCHOR & _NUMBER).astype(np.int64) + first,
        (packed & _DISTANCE).astype(np.uint8),
    )


@compiled
def in_order(packed: U64, first: int) -> tuple[I64, I64, U8] | None:
    """The result of `ordered_pairs` in time linear in the number of pairs: row by row, anchors are
    marked in a bitmap, which is then read in order. None if anchor numbers are too sparse for that."""
    last_row = np.uint64(0)
    low, high = packed[0] >> _ANCHOR & _NUMBER, np.uint64(0)
    for pair in packed:
        last_row = max(last_row, pair >> _ROW)
        low, high = min(low, pair >> _ANCHOR & _NUMBER), max(high, pair >> _ANCHOR & _NUMBER)
    rows, words = np.int64(last_row) + 1, np.int64((high - low) >> np.uint64(6)) + 1
    if rows * words > 4 * len(packed):
        return None
    ends = np.zeros(rows + 1, np.int64)
    for pair in packed:
        ends[(pair >> _ROW) + np.uint64(1)] += 1
    for row in range(rows):
        ends[row + 1] += ends[row]
    of_row = np.empty(len(packed), np.uint64)
    for pair in packed:
        of_row[ends[pair >> _ROW]] = pair
        ends[pair >> _ROW] += 1
    row_of, anchor, distance = (
        np.empty(len(packed), np.int64),
        np.empty(len(packed), np.int64),
        np.empty(len(packed), np.uint8),
    )
    members, apart = np.zeros(words, np.uint64), np.empty(64 * words, np.uint8)
    count, start = 0, 0
    for row in range(rows):
        for pair in of_row[start : ends[row]]:
            place = (pair >> _ANCHOR & _NUMBER) - low
            members[place >> np.uint64(6)] |= np.uint64(1) << (place & np.uint64(63))
            apart[place] = np.uint8(pair & _DISTANCE)
        start = ends[row]
        for word in range(words):
            left = members[word]
            members[word] = 0
            while left:
                lowest = left & (~left + np.uint64(1))
                place = np.uint64(64 * word) + np.uint64(popcount(lowest - np.uint64(1)))
                row_of[count], distance[count] = row, apart[place]
                anchor[count] = np.int64(low + place) + first
                count += 1
                left ^= lowest
    return row_of[:count], anchor[:count], distance[:count]

"""Selects the candidates that a page is compared with: those of the least rank, with ties going to the oldest
(rule 18).

A histogram of ranks gives the cutoff, so nothing needs to be sorted.
"""

from __future__ import annotations

import sys
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.compiled import borrowing, compiled
from stream.tables.arrays import I64
from stream.tables.search.rank import RANKS


class Nearest(NamedTuple):
    """A limit on the candidates of a row that has very many: the live anchors of the least rank, of those of
    equal rank the oldest."""

    most: int
    """Number of candidates wanted per row."""
    within: I64
    """The largest distance at which an anchor counts, for each row (n,)."""
    mortal: I64
    """Numbers of the anchors that die within this batch (k,), ascending."""
    dies: I64
    """The row from which on each of them is dead (k,)."""

    def rows_of(self, anchors: I64, alive: int) -> I64:
        """Return the row from which on each of m anchors is dead, `alive` for those that do not die."""
        rows: I64 = np.full(len(anchors), alive)
        if len(self.mortal):
            place = np.searchsorted(self.mortal, anchors)
            dead = self.mortal.take(place, mode="clip") == anchors
            rows[dead] = self.dies[place[dead]]
        return rows

    def from_row(self, row: int) -> Nearest:
        """The same limit, with rows counted from `row` on."""
        return self._replace(within=self.within[row:], dies=self.dies - row) if row else self


ALL: Final = Nearest(sys.maxsize, *np.zeros((3, 0), np.int64))


class Cutoff(NamedTuple):
    """The bound of a row's candidates that count: all below `rank`, and at it the `left` oldest."""

    rank: int
    left: int
    """Number of candidates of that rank that count."""


@compiled
def nearest_alive(
    ends: NDArray[np.int64],
    anchor: NDArray[np.int64],
    distance: NDArray[np.uint8],
    rank: NDArray[np.uint8],
    unsure: NDArray[np.bool_],
    wanted: Nearest,
) -> NDArray[np.bool_]:
    """Return the mask (m,) of pairs of a row and a stored anchor that are among the row's live ones of the
    least rank.

    Pairs are in order of rows, which end at `ends` (n,), then of age. An anchor counts if it is alive at the
    row's turn and within the row's distance. Ranks matter only for rows with more pairs than are wanted.
    Pairs in reserves alone count only if the row looks there: those are kept that are among the nearest of
    all, or of all others.
    """
    kept = np.ones(len(anchor), np.bool_)
    at_rank = np.zeros(RANKS, np.int64)
    mortal, dies = wanted.mortal, wanted.dies
    start = 0
    for row in range(len(ends)):
        first, start = start, ends[row]
        if first == start:
            continue
        if len(mortal):
            place = np.searchsorted(mortal, anchor[first])
            for pair in range(first, start):
                while place < len(mortal) and mortal[place] < anchor[pair]:
                    place += 1
                kept[pair] = place == len(mortal) or mortal[place] != anchor[pair] or dies[place] > row
        if start - first <= wanted.most:
            continue
        counts = kept[first:start] & (distance[first:start] <= wanted.within[row])
        kept[first:start] = False
        for some in (counts, counts & ~unsure[first:start]):
            at_rank[:] = 0
            for i in range(len(some)):
                at_rank[rank[first + i]] += some[i]
            last, left = cutoff(at_rank, wanted.most)
            for i in range(len(some)):
                nearest = some[i] and (rank[first + i] < last or (rank[first + i] == last and left > 0))
                left -= nearest and rank[first + i] == last
                kept[first + i] |= nearest
    return kept


@borrowing
def cutoff(at_rank: NDArray[np.int64], most: int) -> Cutoff:
    """Return the bound of the `most` of the least rank, given the number of each rank. It includes all if
    there are no more."""
    before = 0
    for rank in range(len(at_rank)):
        if before + at_rank[rank] > most:
            return Cutoff(rank, most - before)
        before += at_rank[rank]
    return Cutoff(len(at_rank), 0)


@borrowing
def youngest_of(rank: NDArray[np.int64], ages: NDArray[np.int64], last: int, left: int) -> int:
    """Return the age of the youngest among the `left` oldest anchors of rank `last`, or -1 for none."""
    if not left:
        return -1
    low, high = np.int64(0), np.int64(0)
    for i in range(len(ages)):
        high = max(high, ages[i])
    while low < high:
        middle, older = (low + high) // 2, np.int64(0)
        for i in range(len(ages)):
            older += (rank[i] == last) & (ages[i] <= middle)
        if older < left:
            low = middle + 1
        else:
            high = middle
    return int(high)

"""Selects the candidates that a page is compared with: those of the least rank, with ties going to the oldest
(rule 18).

A histogram of ranks gives the cutoff, so nothing needs to be sorted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.compiled import borrowing, compiled
from stream.tables.search.nearest import Nearest
from stream.tables.search.rank import RANKS


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
    wanted: Nearest,
) -> NDArray[np.bool_]:
    """Return the mask (m,) of pairs of a row and a stored anchor that are among the row's live ones of the
    least rank.

    Pairs are in order of rows, which end at `ends` (n,), then of age. An anchor counts if it is alive at the
    row's turn and within the row's distance. Ranks matter only for rows with more pairs than are wanted.
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
        at_rank[:] = 0
        for pair in range(first, start):
            kept[pair] &= distance[pair] <= wanted.within[row]
            at_rank[rank[pair]] += kept[pair]
        last, left = cutoff(at_rank, wanted.most)
        for pair in range(first, start):
            if kept[pair] and rank[pair] >= last:
                kept[pair] = rank[pair] == last and left > 0
                left -= kept[pair]
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

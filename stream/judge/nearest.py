"""Selects the candidates that a page is compared with: the nearest, with ties going to the oldest (rule 18).

A histogram of distances gives the cutoff, so nothing needs to be sorted.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled
from stream.tables.search.probing import Nearest

DISTANCES: Final = 256
"""Size of a histogram of distances. Fingerprints have at most 128 bits."""


class Cutoff(NamedTuple):
    """Up to which candidates of a row count: all that are nearer than `distance`, and at it the oldest."""

    distance: int
    left: int
    """How many of those at that distance."""


@compiled
def nearest_alive(
    ends: NDArray[np.int64],
    anchor: NDArray[np.int64],
    distance: NDArray[np.uint8],
    wanted: Nearest,
) -> NDArray[np.bool_]:
    """Which of m pairs of n rows and stored anchors are among the nearest of their row that are alive when
    it is its turn (m,). Row by row, up to `ends` (n,), by age."""
    kept = np.ones(len(anchor), np.bool_)
    at_distance = np.zeros(DISTANCES, np.int64)
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
        at_distance[:] = 0
        for pair in range(first, start):
            at_distance[distance[pair]] += kept[pair]
        last, left = cutoff(at_distance, wanted.most)
        for pair in range(first, start):
            if kept[pair] and distance[pair] >= last:
                kept[pair] = distance[pair] == last and left > 0
                left -= kept[pair]
    return kept


@compiled
def cutoff(at_distance: NDArray[np.int64], most: int) -> Cutoff:
    """Up to which the `most` nearest are, of so many at each distance; with as many or fewer, all."""
    before = 0
    for distance in range(len(at_distance)):
        if before + at_distance[distance] > most:
            return Cutoff(distance, most - before)
        before += at_distance[distance]
    return Cutoff(len(at_distance), 0)


@compiled
def youngest_of(distance: NDArray[np.int64], ages: NDArray[np.int64], last: int, left: int) -> int:
    """Return the age of the youngest among the `left` oldest anchors at distance `last`, or -1 for none."""
    if not left:
        return -1
    low, high = np.int64(0), np.int64(0)
    for i in range(len(ages)):
        high = max(high, ages[i])
    while low < high:
        middle, older = (low + high) // 2, np.int64(0)
        for i in range(len(ages)):
            older += (distance[i] == last) & (ages[i] <= middle)
        if older < left:
            low = middle + 1
        else:
            high = middle
    return int(high)

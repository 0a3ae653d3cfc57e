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
    """The bound of a row's candidates that count: all nearer than `distance`, and at it the `left` oldest."""

    distance: int
    left: int
    """Number of candidates at that distance that count."""


@compiled
def nearest_alive(
    ends: NDArray[np.int64],
    anchor: NDArray[np.int64],
    distance: NDArray[np.uint8],
    wanted: Nearest,
) -> NDArray[np.bool_]:
    """Return the mask (m,) of pairs of a row and a stored anchor that are among the row's nearest live ones.

    Pairs are in order of rows, which end at `ends` (n,), then of age. An anchor counts if it is alive at the
    row's turn.
    """
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
    """Return the bound of the `most` nearest, given the number at each distance. It includes all if there are
    no more."""
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

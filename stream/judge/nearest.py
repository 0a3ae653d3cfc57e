"""Selects the candidates that a page is compared with: the nearest, with ties going to the oldest (rule 18).

A histogram of distances gives the cut-off, so nothing needs to be sorted.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled

DISTANCES: Final = 256
"""Size of a histogram of distances. Fingerprints have at most 128 bits."""


@compiled
def may_count(
    ends: NDArray[np.int64],
    anchor: NDArray[np.int64],
    distance: NDArray[np.uint8],
    mortal: NDArray[np.int64],
    most: int,
) -> NDArray[np.bool_]:
    """Return the mask (m,) of pairs whose anchor may be among the `most` nearest live ones of its row.

    The m pairs of a row and a stored anchor are grouped by row, which end at `ends` (n,), and sorted by age
    within a row. `mortal` anchors (sorted) may be superseded before it is the row's turn. They do not count
    towards `most`, and are kept unless enough other anchors come before them.
    """
    kept = np.ones(len(anchor), np.bool_)
    dies = np.zeros(len(anchor), np.bool_)
    at_distance = np.zeros(DISTANCES, np.int64)
    start = 0
    for end in ends:
        first, start = start, end
        if end - first <= most:
            continue
        at_distance[:] = 0
        place = np.searchsorted(mortal, anchor[first]) if len(mortal) else 0
        for pair in range(first, end):
            while place < len(mortal) and mortal[place] < anchor[pair]:
                place += 1
            dies[pair] = place < len(mortal) and mortal[place] == anchor[pair]
            if not dies[pair]:
                at_distance[distance[pair]] += 1
        last, left = _last(at_distance, most)
        for pair in range(first, end):
            kept[pair] = distance[pair] < last or (distance[pair] == last and left > 0)
            if distance[pair] == last and not dies[pair]:
                left -= 1
    return kept


@compiled
def nearest(
    stored: NDArray[np.uint8],
    gone: NDArray[np.bool_],
    fresh: NDArray[np.int64],
    ages: NDArray[np.int64],
    within: int,
    most: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indexes of the `most` nearest live anchors, separately for stored and fresh ones.

    `stored` (m,) are the distances of stored anchors by age, of which those in the mask `gone` (m,) are dead.
    `fresh` (k,) are the distances of anchors of the current batch with their distinct `ages`, which are
    younger than all stored ones; they are alive and within the distance `within`. Stored ones beyond `within`
    are ignored.
    """
    at_distance = np.zeros(DISTANCES, np.int64)
    for pair in range(len(stored)):
        if not gone[pair] and stored[pair] <= within:
            at_distance[stored[pair]] += 1
    for each in fresh:
        at_distance[each] += 1
    last, left = _last(at_distance, most)
    of_stored, of_fresh = np.empty(len(stored), np.int64), np.empty(len(fresh), np.int64)
    old = 0
    for pair in range(len(stored)):
        apart = stored[pair]
        if not gone[pair] and apart <= within and (apart < last or (apart == last and left > 0)):
            of_stored[old] = pair
            old += 1
            left -= apart == last
    youngest = _of_oldest(fresh, ages, last, left)
    new = 0
    for i in range(len(fresh)):
        if fresh[i] < last or (fresh[i] == last and ages[i] <= youngest):
            of_fresh[new] = i
            new += 1
    return of_stored[:old], of_fresh[:new]


@compiled
def _last(at_distance: NDArray[np.int64], most: int) -> tuple[int, int]:
    """Return the largest distance among the `most` nearest, and how many at that distance belong to them.

    If there are at most `most`, the returned distance is beyond all.
    """
    before = 0
    for distance in range(len(at_distance)):
        if before + at_distance[distance] > most:
            return distance, most - before
        before += at_distance[distance]
    return len(at_distance), 0


@compiled
def _of_oldest(distance: NDArray[np.int64], ages: NDArray[np.int64], last: int, left: int) -> int:
    """Return the age of the youngest among the `left` oldest anchors at distance `last`, or -1 for none."""
    if not left:
        return -1
    lowest, highest, there = np.int64(2**62), np.int64(-1), 0
    for i in range(len(ages)):
        if distance[i] == last:
            there += 1
            lowest, highest = min(lowest, ages[i]), max(highest, ages[i])
    if there <= left:
        return int(highest)
    met = np.zeros(highest - lowest + 1, np.bool_)
    for i in range(len(ages)):
        if distance[i] == last:
            met[ages[i] - lowest] = True
    place = 0
    while left:
        left -= met[place]
        place += 1
    return int(lowest) + place - 1

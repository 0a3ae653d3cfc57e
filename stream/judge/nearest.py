"""With which of its candidates a page is compared: the nearest, of equally near ones the oldest (rule 18).

Nothing is sorted: how many there are at each distance says up to which one they count, and how many of those.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled

DISTANCES: Final = 256
"""More than there are: fingerprints have 128 bits at most."""


@compiled
def may_count(
    ends: NDArray[np.int64],
    anchor: NDArray[np.int64],
    distance: NDArray[np.uint8],
    mortal: NDArray[np.int64],
    most: int,
) -> NDArray[np.bool_]:
    """Which of m pairs of n rows and stored anchors may be among the `most` nearest of their row that are
    alive when it is its turn (m,).

    Row by row, up to `ends` (n,), by age. `mortal` anchors, ascending, may be dead by then: they take no
    place, and are kept as long as those that are sure to live leave one.
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
    """Indexes of the `most` nearest live anchors among those of two kinds, with the distances `stored` (m,),
    by age, and `fresh` (k,), which are all younger and of different `ages`, ascending ranks of the batch.

    Those `gone` (m,) are dead; `fresh` ones live, and are no further away than `within`, as all must be.
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
    """The distance of the last of the `most` nearest, and how many at that distance are among them; with as
    many there or fewer, one beyond all."""
    before = 0
    for distance in range(len(at_distance)):
        if before + at_distance[distance] > most:
            return distance, most - before
        before += at_distance[distance]
    return len(at_distance), 0


@compiled
def _of_oldest(distance: NDArray[np.int64], ages: NDArray[np.int64], last: int, left: int) -> int:
    """Age of the youngest of the `left` oldest at the distance `last`; -1 for none."""
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

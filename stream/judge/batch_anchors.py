"""Anchors created within the current batch, found as if its pages were judged one by one.

The tables contain the anchors of earlier batches only. This module keeps the few buckets that some row of the
batch may enter and another row probes. The row-by-row loop of `decide` fills and reads them. Hostile pages
can put all rows into one bucket, so all loops over members are compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled, popcount
from stream.judge.bucket_collisions import meetings
from stream.judge.nearest import DISTANCES
from stream.tables.probing import Probing
from stream.tables.slots import Slots

_SLOTS: Final = 1 << 22
"""Bits of the filter for the batch's own buckets: 512 KiB, which fit into the CPU cache."""

_NONE: Final = np.empty(0, np.int64)

OVERFULL: Final = 8
"""Multiple of `bucket_cap` up to which a full bucket accepts anchors for which it is the emptiest one. Of
6,000 pages that share three quarters of their words, 98 % of the copies are found with this rule and 85 %
without."""


class Neighbours:
    """The shared buckets of one batch of n rows.

    `probed` are the probes of the rows from `Tables.search`, in order; `fingerprints` are (n,) or (n, 2).
    `sizes` (n, T) are the numbers of live anchors in each exact bucket before the batch; None without a cap.
    """

    def __init__(
        self,
        probed: Sequence[Probing],
        fingerprints: NDArray[np.uint64],
        sizes: NDArray[np.uint32] | None,
        cap: int | None,
    ) -> None:
        self._cap = cap
        self._fingerprints = fingerprints.reshape(len(fingerprints), -1)
        design, tree = probed[0].design, probed[0].tree
        self._tables = design.tables
        keys = np.concatenate([probing.keys for probing in probed])
        bits = np.concatenate([probing.bits for probing in probed], axis=1)
        slots = Slots(design, (_SLOTS // design.tables).bit_length() - 1)
        rows = len(keys)
        filled = np.zeros(-(-slots.size // 8), np.uint8)
        bucket_of, entering, row, bucket = meetings(
            keys, slots.of_keys(keys), filled, bits, design.key_flip, slots.flips, *tree
        )
        self._probed = bucket
        self._probes_end = np.searchsorted(row, np.arange(rows + 1, dtype=np.int32)).tolist()

        # Keep the buckets that other rows probe, and those that may become full during the batch.
        kept = np.zeros(len(entering), np.bool_)
        kept[bucket] = True
        # Current number of live anchors in buckets that may become full; -1 for others.
        self._crowd: NDArray[np.int64] = np.full(len(entering), -1, np.int64)
        self._crowded: dict[int, int] = {}
        if cap is not None and sizes is not None:
            before = np.zeros(len(entering), np.int64)
            before[bucket_of] = sizes.ravel()
            brink = np.flatnonzero(before + entering > cap)
            kept[brink] = True
            self._crowd[brink] = before[brink]
            if len(brink):
                key = np.empty(len(entering), np.uint64)
                key[bucket_of] = keys.ravel()
                self._crowded = dict(zip(key[brink].tolist(), brink.tolist(), strict=True))
        self._cells = np.flatnonzero(kept[bucket_of])
        self._entries = bucket_of[self._cells]
        self._entries_end = np.searchsorted(self._cells, np.arange(rows + 1) * design.tables).tolist()
        # Members of each kept bucket, oldest first, with room for all rows that may enter it.
        room = np.where(kept, entering, 0)
        self._first = np.cumsum(room) - room
        self._size = np.zeros(len(room), np.int64)
        self._members = np.empty(int(room.sum()), np.int64)
        self._met = np.full(rows, -1, np.int64)
        self._skipped: dict[int, int] = {}
        """Anchor of this batch -> bit mask of the tables that it did not enter, if any."""

        self.concerned: NDArray[np.bool_] = np.zeros(rows, np.bool_)
        """(n,): whether a row probes or may enter a kept bucket."""
        self.concerned[row] = True
        self.concerned[self._cells // design.tables] = True

    def near(
        self, row: int, distance: int, most: int = sys.maxsize
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Find the live anchors of this batch in the buckets that `row` probes, within `distance` bits of it.

        Returns their rows (m,), their distances (m,), and the number of bucket members examined. Beyond the
        `most` nearest, with ties going to the oldest, the result may be incomplete.
        """
        first, end = self._probes_end[row], self._probes_end[row + 1]
        if first == end:
            return _NONE, _NONE, 0
        return _members_near(
            self._probed[first:end], self._first, self._size, self._members, self._fingerprints, row,
            distance, most, self._met,
        )  # fmt: skip

    def enter(self, row: int) -> int:
        """Add `row` as an anchor. Returns the bit mask of tables whose full bucket it does not enter (rule
        16)."""
        first, end = self._entries_end[row], self._entries_end[row + 1]
        if first == end:
            return 0
        skipped = int(
            _enter(
                row, self._cells[first:end], self._entries[first:end], self._tables, self._crowd,
                self._cap or 0, self._first, self._size, self._members,
            )
        )  # fmt: skip
        if skipped:
            self._skipped[row] = skipped
        return skipped

    def leave(self, row: int) -> None:
        """Remove the anchor `row` of this batch, which was superseded."""
        first, end = self._entries_end[row], self._entries_end[row + 1]
        if first < end:
            leave(
                row, self._cells[first:end], self._entries[first:end], self._tables,
                np.uint64(self._skipped.get(row, 0)), self._crowd, self._first, self._size, self._members,
            )  # fmt: skip

    def stored_left(self, keys: list[int], skipped: int) -> None:
        """Account for a superseded anchor of an earlier batch, given by bucket keys (T) and skip mask."""
        for table, key in enumerate(keys):
            if key in self._crowded and not skipped >> table & 1:
                self._crowd[self._crowded[key]] -= 1


@compiled
def best_of(similarity: NDArray[np.int64], distance: NDArray[np.int64], age: NDArray[np.int64]) -> int:
    """Return the index of the best of m > 0 anchors (rule 15)."""
    best = 0
    for i in range(1, len(age)):
        if similarity[i] < similarity[best]:
            continue
        if similarity[i] > similarity[best] or (distance[i], age[i]) < (distance[best], age[best]):
            best = i
    return best


@compiled
def _enter(
    row: int,
    cells: NDArray[np.int64],
    entries: NDArray[np.int32],
    tables: int,
    crowd: NDArray[np.int64],
    cap: int,
    first: NDArray[np.int64],
    size: NDArray[np.int64],
    members: NDArray[np.int64],
) -> np.uint64:
    """Compiled part of `Neighbours.enter`, given the kept cells of the row and their buckets."""
    skipped, emptiest, least = np.uint64(0), -1, OVERFULL * cap
    for i in range(len(cells)):
        size_now = crowd[entries[i]]
        if size_now >= cap and size_now >= 0:
            skipped |= np.uint64(1) << np.uint64(cells[i] % tables)
            if size_now < least:
                emptiest, least = i, size_now
    if emptiest >= 0:
        skipped ^= np.uint64(1) << np.uint64(cells[emptiest] % tables)
    for i in range(len(cells)):
        if not skipped >> np.uint64(cells[i] % tables) & np.uint64(1):
            bucket = entries[i]
            crowd[bucket] += crowd[bucket] >= 0
            members[first[bucket] + size[bucket]] = row
            size[bucket] += 1
    return skipped


@compiled
def leave(
    row: int,
    cells: NDArray[np.int64],
    entries: NDArray[np.int32],
    tables: int,
    skipped: np.uint64,
    crowd: NDArray[np.int64],
    first: NDArray[np.int64],
    size: NDArray[np.int64],
    members: NDArray[np.int64],
) -> None:
    """Compiled part of `Neighbours.leave`. `skipped` is the mask of tables that the row did not enter."""
    for i in range(len(cells)):
        if skipped >> np.uint64(cells[i] % tables) & np.uint64(1):
            continue
        bucket = entries[i]
        crowd[bucket] -= crowd[bucket] >= 0
        size[bucket] -= 1
        start, end = first[bucket], first[bucket] + size[bucket]
        at = start + np.searchsorted(members[start : end + 1], row)
        for place in range(at, end):
            members[place] = members[place + 1]


@compiled
def _members_near(
    probed: NDArray[np.int32],
    first: NDArray[np.int64],
    size: NDArray[np.int64],
    members: NDArray[np.int64],
    fingerprints: NDArray[np.uint64],
    row: int,
    distance: int,
    most: int,
    met: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Compiled part of `Neighbours.near`. `met` (n,) is the last row for which each member was found."""
    looked = 0
    for bucket in probed:
        looked += size[bucket]
    found, apart = np.empty(looked, np.int64), np.empty(looked, np.int64)
    count, reach = 0, distance
    at_distance, in_bucket = np.zeros((2, DISTANCES), np.int64)
    for bucket in probed:
        # Within a bucket, a member is not among the nearest after `most` older ones at the same distance or
        # less. Over all buckets, a member is not among the nearest if `most` others are nearer.
        many, nearer, bound = size[bucket] > most, 0, reach
        if many:
            in_bucket[:] = 0
        for at in range(first[bucket], first[bucket] + size[bucket]):
            member = members[at]
            bits = np.int64(0)
            for word in range(fingerprints.shape[1]):
                bits += popcount(fingerprints[member, word] ^ fingerprints[row, word])
            if bits > bound:
                continue
            if many:
                in_bucket[bits] += 1
                nearer += 1
                while nearer >= most and bound >= 0:
                    nearer -= in_bucket[bound]
                    bound -= 1
            if met[member] == row:
                continue
            met[member] = row
            found[count], apart[count] = member, bits
            count += 1
            at_distance[bits] += 1
        if count >= most:
            within = 0
            for apart_by in range(reach + 1):
                within += at_distance[apart_by]
                if within >= most:
                    reach = apart_by
                    break
    return found[:count], apart[:count], looked

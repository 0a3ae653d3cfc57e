"""Anchors that arise inside a batch, found exactly as if its pages came one by one.

The tables hold the anchors of earlier batches only. Within a batch, the few buckets that one row enters and
another row probes are kept here, and the row-by-row loop of `decide` fills and reads them. Strangers can make
one bucket of all rows: whatever looks at its members is compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled, popcount
from stream.judge.meetings import meetings
from stream.judge.nearest import DISTANCES
from stream.tables.probing import Probing
from stream.tables.slots import Slots

_SLOTS: Final = 1 << 22
"""Bits that tell a batch's own buckets from others: 512 KiB, which stay in the processor's cache."""

_NONE: Final = np.empty(0, np.int64)

OVERFULL: Final = 8
"""How many times `bucket_cap` a bucket holds with anchors for whom it is the emptiest of the full ones. Of
6 000 pages that share three quarters of their words it finds 98 % of the copies, and 85 % without."""


class Neighbours:
    """The shared buckets of one batch of n rows.

    `probed` are the rows' probes, in order, of `Tables.search`; `fingerprints` are theirs, (n,) or (n, 2).
    `sizes` (n, T) are the live anchors of each exact bucket before the batch; None without a cap.
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

        # Which buckets need to be kept? Those that somebody probes, or that may be full when somebody comes.
        kept = np.zeros(len(entering), np.bool_)
        kept[bucket] = True
        # Of a bucket that may become full, live anchors by now; of others -1.
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
        # Of each kept bucket the members so far, oldest first, in room for all rows that might enter it.
        room = np.where(kept, entering, 0)
        self._first = np.cumsum(room) - room
        self._size = np.zeros(len(room), np.int64)
        self._members = np.empty(int(room.sum()), np.int64)
        self._met = np.full(rows, -1, np.int64)
        self._skipped: dict[int, int] = {}
        """Anchor of this batch -> the tables that it stayed out of, where there are any."""

        self.concerned: NDArray[np.bool_] = np.zeros(rows, np.bool_)
        """Rows (n,) that probe or enter a bucket that is kept here."""
        self.concerned[row] = True
        self.concerned[self._cells // design.tables] = True

    def near(
        self, row: int, distance: int, most: int = sys.maxsize
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Rows of this batch that became anchors, are alive, lie in a bucket that `row` probes and are at
        most `distance` bits from it, (m,); how many bits, (m,); and how many members were looked at.

        Of more than `most`, perhaps not all that are not among the `most` nearest, of equally near ones the
        oldest.
        """
        first, end = self._probes_end[row], self._probes_end[row + 1]
        if first == end:
            return _NONE, _NONE, 0
        return _members_near(
            self._probed[first:end], self._first, self._size, self._members, self._fingerprints, row,
            distance, most, self._met,
        )  # fmt: skip

    def enter(self, row: int) -> int:
        """`row` becomes an anchor. Returns the bit mask of tables whose bucket it stays out of (rule 16)."""
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
        """The anchor `row` of this batch was superseded."""
        first, end = self._entries_end[row], self._entries_end[row + 1]
        if first < end:
            leave(
                row, self._cells[first:end], self._entries[first:end], self._tables,
                np.uint64(self._skipped.get(row, 0)), self._crowd, self._first, self._size, self._members,
            )  # fmt: skip

    def stored_left(self, keys: list[int], skipped: int) -> None:
        """An anchor of the tables, with these bucket keys (T) and skip mask, was superseded."""
        for table, key in enumerate(keys):
            if key in self._crowded and not skipped >> table & 1:
                self._crowd[self._crowded[key]] -= 1


@compiled
def best_of(similarity: NDArray[np.int64], distance: NDArray[np.int64], age: NDArray[np.int64]) -> int:
    """Index of the best of m > 0 anchors (rule 15)."""
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
    """What `Neighbours.enter` does, given the row's cells among those that are kept, and their buckets."""
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
    """What `Neighbours.leave` does; `skipped` are the tables that the row stayed out of."""
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
    """What `Neighbours.near` gives. `met` (n,) is the last row that met each member, below `row` before."""
    looked = 0
    for bucket in probed:
        looked += size[bucket]
    found, apart = np.empty(looked, np.int64), np.empty(looked, np.int64)
    count, reach = 0, distance
    at_distance, in_bucket = np.zeros((2, DISTANCES), np.int64)
    for bucket in probed:
        # Of one bucket, whoever comes after `most` older ones that are no further away is not among the
        # nearest; of all, whoever is further away than `most` others.
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

"""Anchors created within the current batch, searched as if its pages were judged one by one.

The tables hold the anchors of earlier batches only. Within a batch, the few buckets that one row enters and
another row probes are kept here. The row-by-row loop of `settle` fills and reads them. Hostile pages can put
all rows into one bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled, inlined, popcount
from stream.judge.bucket_collisions import BatchProbes, Filter, collisions
from stream.tables.arrays import I32, I64, U64
from stream.tables.hot.slots import Slots
from stream.tables.search.packed_pairs import Integer
from stream.tables.search.probing import Probing
from stream.tables.search.rank import RANKS, rank_of

_SLOTS: Final = 1 << 22
"""Bits of the filter for the batch's own buckets: 512 KiB, which fit into the CPU cache."""

OVERFULL: Final = 8
"""Multiple of `bucket_cap` up to which a full bucket accepts anchors for which it is the emptiest one. Of
6,000 pages that share three quarters of their words, 98 % of the copies are found with this rule and 85 %
without."""


LOOKED_AT_ONCE: Final = 72
"""Number of members whose distances are computed at once. With some more than are compared by default, the
first ones may bound the rank of all others: with 64, `hub` of the hostile journals takes 6 % longer."""


class Buckets(NamedTuple):
    """The shared buckets of one batch of n rows, T tables and b buckets; what the compiled loop changes."""

    tables: int
    cap: int
    """0 for none."""
    fingerprints: U64
    """(n, lanes)"""
    words: U64
    """(n, W): the keys of the rows."""
    probed: I32
    """Buckets that the rows probe, row by row, up to `probed_end` (n + 1,)."""
    probed_end: I64
    cells: I64
    """row * T + table where a row enters a bucket that is kept, row by row, up to `entered_end` (n + 1,)."""
    entered: I32
    """Bucket of each cell."""
    entered_end: I64
    crowd: I64
    """Current number of live anchors of each bucket that may become full; -1 for others (b,)."""
    crowded: bool
    """Whether there are any that may."""
    first: I64
    """Index of each bucket's first member in `members`, oldest first (b,)."""
    size: I64
    """Number of members of each bucket (b,)."""
    members: I64
    """Rows in the buckets, with room for all that might enter (r,)."""
    prints: U64
    """Fingerprints of `members`, so that they can be read in order (lanes, r)."""
    skipped: U64
    """Bit mask of the tables whose bucket each row did not enter (n,)."""
    seen_by: I64
    """The last row that came across each row as a member (n,), to count a member of several buckets once."""
    nearby: I64
    """Scratch space for the members that are near a row (n,)."""
    apart: I64
    """Scratch space for the distances of those members, in bits (n,)."""
    ranks: I64
    """Scratch space for their ranks (n,)."""


class CrowdedBuckets(NamedTuple):
    """The buckets that may become full, ascending by key."""

    keys: U64
    buckets: I64

    def of(self, keys: U64, skipped: U64) -> tuple[I64, I64]:
        """Return the buckets that m anchors are in, anchor by anchor, and the end of each anchor's (m + 1,).

        `keys` are (m, T); `skipped` are bit masks of the tables that the anchors did not enter (m,).
        """
        place = np.searchsorted(self.keys, keys)
        inside = self.keys.take(place, mode="clip") == keys
        inside &= skipped[:, None] >> np.arange(keys.shape[1], dtype=np.uint64) & np.uint64(1) == 0
        ends = np.append(0, np.cumsum(inside.sum(axis=1)))
        return self.buckets[place[inside]], ends


def shared_buckets(
    probed: Sequence[Probing], fingerprints: U64, sizes: NDArray[np.uint32] | None, cap: int | None
) -> tuple[Buckets, CrowdedBuckets]:
    """The buckets that one row of a batch of n enters and another probes, empty as yet.

    `probed` are the probes of the rows from `Tables.search`, in order; `fingerprints` are (n, lanes).
    `sizes` (n, T) are the numbers of live anchors in each exact bucket before the batch; None without a cap.
    """
    design, queries = probed[0].design, [probing.queries for probing in probed]
    keys = np.concatenate([each.keys for each in queries])
    bits = np.concatenate([each.bits for each in queries], axis=1)
    slots = Slots(design, (_SLOTS // design.tables).bit_length() - 1)
    rows, lanes = len(keys), fingerprints.size // len(fingerprints)
    filled = np.zeros(-(-slots.size // 8), np.uint8)
    bucket_of, entering, row, bucket = collisions(
        BatchProbes(keys, bits, design.key_flip, queries[0].tree),
        Filter(slots.of_keys(keys), slots.flips, filled),
    )
    # Which buckets need to be kept? Those that somebody probes, or that may be full when somebody comes.
    kept = np.zeros(len(entering), np.bool_)
    kept[bucket] = True
    crowd: I64 = np.full(len(entering), -1, np.int64)
    crowded = CrowdedBuckets(np.zeros(0, np.uint64), np.zeros(0, np.int64))
    if cap is not None and sizes is not None:
        before = np.zeros(len(entering), np.int64)
        before[bucket_of] = sizes.ravel()
        brink = np.flatnonzero(before + entering > cap)
        kept[brink] = True
        crowd[brink] = before[brink]
        if len(brink):
            key = np.empty(len(entering), np.uint64)
            key[bucket_of] = keys.ravel()
            order = np.argsort(key[brink])
            crowded = CrowdedBuckets(key[brink][order], brink[order])
    cells = np.flatnonzero(kept[bucket_of])
    room = np.where(kept, entering, 0)
    buckets = Buckets(
        tables=design.tables,
        cap=cap or 0,
        fingerprints=np.ascontiguousarray(fingerprints.reshape(rows, lanes)),
        words=np.concatenate([each.words for each in queries]),
        probed=bucket,
        probed_end=np.searchsorted(row, np.arange(rows + 1, dtype=np.int32)),
        cells=cells,
        entered=bucket_of[cells],
        entered_end=np.searchsorted(cells, np.arange(rows + 1) * design.tables),
        crowd=crowd,
        crowded=len(crowded.keys) > 0,
        first=np.cumsum(room) - room,
        size=np.zeros(len(room), np.int64),
        members=np.empty(int(room.sum()), np.int64),
        prints=np.empty((lanes, int(room.sum())), np.uint64),
        skipped=np.zeros(rows, np.uint64),
        seen_by=np.full(rows, -1, np.int64),
        nearby=np.empty(rows, np.int64),
        apart=np.empty(rows, np.int64),
        ranks=np.empty(rows, np.int64),
    )
    return buckets, crowded


@inlined
def any_full(some: I32, crowd: I64, cap: Integer) -> bool:
    """Whether one of some buckets is full (rule 16), given `Buckets.crowd`."""
    full = False
    for bucket in some:
        full |= crowd[bucket] >= cap
    return full


@compiled
def enter(row: int, buckets: Buckets) -> None:
    """Enter `row` as an anchor into its buckets, of the full ones into the emptiest at most (rule 16)."""
    first, end, tables = buckets.entered_end[row], buckets.entered_end[row + 1], buckets.tables
    cells, entered, crowd = buckets.cells[first:end], buckets.entered[first:end], buckets.crowd
    skipped, emptiest, least = np.uint64(0), -1, OVERFULL * buckets.cap
    for i in range(len(cells)):
        size = crowd[entered[i]]
        if size >= buckets.cap and size >= 0:
            skipped |= np.uint64(1) << np.uint64(cells[i] % tables)
            if size < least:
                emptiest, least = i, size
    if emptiest >= 0:
        skipped ^= np.uint64(1) << np.uint64(cells[emptiest] % tables)
    for i in range(len(cells)):
        if not skipped >> np.uint64(cells[i] % tables) & np.uint64(1):
            bucket = entered[i]
            crowd[bucket] += crowd[bucket] >= 0
            place = buckets.first[bucket] + buckets.size[bucket]
            buckets.members[place] = row
            buckets.prints[:, place] = buckets.fingerprints[row]
            buckets.size[bucket] += 1
    buckets.skipped[row] = skipped


@compiled
def leave(row: int, buckets: Buckets) -> None:
    """Remove the anchor `row` of this batch, which was superseded, from its buckets."""
    members = buckets.members
    for i in range(buckets.entered_end[row], buckets.entered_end[row + 1]):
        if buckets.skipped[row] >> np.uint64(buckets.cells[i] % buckets.tables) & np.uint64(1):
            continue
        bucket = buckets.entered[i]
        buckets.crowd[bucket] -= buckets.crowd[bucket] >= 0
        buckets.size[bucket] -= 1
        start, end = buckets.first[bucket], buckets.first[bucket] + buckets.size[bucket]
        at = start + np.searchsorted(members[start : end + 1], row)
        for place in range(at, end):
            members[place] = members[place + 1]
            buckets.prints[:, place] = buckets.prints[:, place + 1]


@compiled
def members_near(row: int, within: Integer, reach: Integer, most: int, buckets: Buckets) -> tuple[int, int]:
    """Write to `buckets.nearby` the live anchors of this batch in buckets that `row` probes that are at most
    `within` bits from it and have at most the rank `reach`, and to `buckets.apart` and `buckets.ranks` their
    distances and ranks. Returns their number, and the number of members looked at.

    If there are more than `most`, some may be left out that are not among the `most` of the least rank; of
    those of equal rank, the oldest come first.
    """
    members, nearby, apart, ranks = buckets.members, buckets.nearby, buckets.apart, buckets.ranks
    words, own, wide = buckets.prints[0], buckets.fingerprints[row, 0], len(buckets.prints) > 1
    more_words, more_own = buckets.prints[-1], buckets.fingerprints[row, -1]
    bits_at, near_at = np.empty((2, LOOKED_AT_ONCE), np.int64)
    at_rank, in_bucket = np.zeros((2, RANKS), np.int64)
    keys, most_apart = buckets.words, np.int64(within)
    count, looked, inside, reach = 0, 0, 0, np.int64(reach)
    for bucket in buckets.probed[buckets.probed_end[row] : buckets.probed_end[row + 1]]:
        size, first = buckets.size[bucket], buckets.first[bucket]
        looked += size
        many, nearer, bound = size > most, 0, reach
        if many:
            in_bucket[:] = 0
        for start in range(first, first + size, LOOKED_AT_ONCE):
            end, nearest = min(first + size, start + LOOKED_AT_ONCE), min(most_apart, bound)
            near = _distances(words, start, end, own, nearest, bits_at)
            if wide:
                near = _add_distances(more_words, start, end, more_own, nearest, bits_at)
            if not near:
                continue
            near = 0
            for i in range(end - start):  # without a branch, too
                near_at[near] = i
                near += bits_at[i] <= nearest
            for place in range(near):
                i = near_at[place]
                bits, member = bits_at[i], members[start + i]
                rank = rank_of(bits, keys, row, keys, member)
                if rank > bound:
                    continue
                if many:  # of one bucket, none counts after `most` older ones of no greater rank
                    in_bucket[rank] += 1
                    nearer += 1
                    while nearer >= most and bound >= 0:
                        nearer -= in_bucket[bound]
                        bound -= 1
                if buckets.seen_by[member] == row:
                    continue
                buckets.seen_by[member] = row
                nearby[count], apart[count], ranks[count] = member, bits, rank
                count += 1
                inside += 1
                at_rank[rank] += 1
                while inside - at_rank[reach] >= most:  # of all, none of greater rank than those
                    inside -= at_rank[reach]
                    reach -= 1
                while bound > reach:
                    nearer -= in_bucket[bound]
                    bound -= 1
    return count, looked


@compiled
def _distances(words: U64, start: int, end: int, word: np.uint64, bound: Integer, bits: I64) -> int:
    """Write to `bits` the distances of the words [start, end) from `word`. Returns how many are in `bound`.

    There are no branches, and indexes are unsigned, so that the compiler makes vector instructions of it.
    """
    near = np.int64(0)
    for i in range(end - start):
        bits[i] = popcount(words[np.uint64(start + i)] ^ word)
        near += bits[i] <= bound
    return int(near)


@compiled
def _add_distances(words: U64, start: int, end: int, word: np.uint64, bound: Integer, bits: I64) -> int:
    """Add the distances of the second words to `bits`, like `_distances`."""
    near = np.int64(0)
    for i in range(end - start):
        bits[i] += popcount(words[np.uint64(start + i)] ^ word)
        near += bits[i] <= bound
    return int(near)

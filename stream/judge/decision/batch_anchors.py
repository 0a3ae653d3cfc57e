"""Anchors created within the current batch, searched as if its pages were judged one by one.

The tables hold the anchors of earlier batches only. Within a batch, the few buckets that one row enters and
another row probes are kept here. The row-by-row loop of `settle` fills and reads them. Hostile pages can put
all rows into one bucket.
"""

from __future__ import annotations

import sys
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.compiled import borrowing, compiled, inlined, popcount
from stream.judge.decision.bucket_collisions import Collisions, numbered
from stream.tables.arrays import I32, I64, U64
from stream.tables.reserves.keys import ALL_PAIRS, BUCKETS, LAST_RESORT, PAIRS, RESERVES, keys_of_reserves
from stream.tables.search.near import LOOKED_AT_ONCE, lowest_place, perhaps_near
from stream.tables.search.packed_pairs import Integer
from stream.tables.search.rank import RANKS, abridged_minima, rank_of
from stream.tables.search.result import ProbedReserves

FURTHER: Final = 2
"""How much further up in rank members are looked for if there are too few as near as expected; four times as
much each time that there still are too few."""


class Buckets(NamedTuple):
    """The shared buckets of one batch of n rows and b buckets; what the compiled loop changes.

    A page has T buckets: in as many tables, or in `pairs` tables and in reserves.
    """

    tables: int
    """T"""
    pairs: int
    """Tables in place of whose full buckets anchors enter reserves: T, if there are no reserves."""
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
    """row * T + table where a row may enter a bucket that is kept, row by row, up to `entered_end` (n + 1,).
    Reserves come after tables."""
    entered: I32
    """Bucket of each cell."""
    entered_end: I64
    crowd: I64
    """Current number of live anchors of each bucket that may become full; -1 for others (b,)."""
    tabled: int
    """Number of buckets in tables; reserves have higher numbers."""
    further: NDArray[np.bool_]
    """Whether each row looks into its reserves because of a stored anchor (n,)."""
    stayed_out: NDArray[np.bool_]
    """Whether an anchor of this batch stayed out of each bucket in a table (tabled,)."""
    crowded: bool
    """Whether there are any that may."""
    first: I64
    """Index of each bucket's first member in `members`, oldest first (b,)."""
    size: I64
    """Number of members of each bucket (b,)."""
    members: I64
    """Rows in the buckets, with room for all that might enter (r,)."""
    prints: U64
    """The first word of the fingerprint of each of `members`, so that they can be read in order, and
    LOOKED_AT_ONCE more, as that many are read at any place (r + LOOKED_AT_ONCE,)."""
    minima: U64
    """The abridged minima of the same."""
    abridged: U64
    """The abridged minima of the rows (n,)."""
    skipped: U64
    """Bit mask of the tables whose bucket each row did not enter, and of the reserves that it did (n,)."""
    seen_by: I64
    """The last row that came across each row as a member (n,), to count a member of several buckets once."""
    expected: I64
    """The rank at which the next row may have found as many members as it needs: about that of the last row
    that found as many (1,). A bound that holds from the first member on spares most of the ranking."""
    nearby: I64
    """Scratch space for the members that are near a row (n,)."""
    apart: I64
    """Scratch space for the distances of those members, in bits (n,)."""
    ranks: I64
    """Scratch space for their ranks (n,)."""
    at_rank: I64
    """Scratch space for how many are of each rank (RANKS,)."""


class CrowdedBuckets(NamedTuple):
    """The buckets that may become full, and their keys."""

    keys: U64
    buckets: I64

    def of(self, keys: U64, skipped: U64, pairs: int) -> tuple[I64, I64]:
        """Return the buckets that m anchors are in, anchor by anchor, and the end of each anchor's (m + 1,).

        `keys` are (m, T), of which the first `pairs` are not of reserves; `skipped` are the masks of the
        anchors, as in `Buckets` (m,).
        """
        order, table = np.argsort(self.keys), np.arange(keys.shape[1], dtype=np.uint64)
        place = order.take(np.searchsorted(self.keys, keys, sorter=order), mode="clip")
        inside = self.keys[place] == keys
        inside &= (skipped[:, None] >> table & np.uint64(1) != 0) == (table >= pairs)
        ends = np.append(0, np.cumsum(inside.sum(axis=1)))
        return self.buckets[place[inside]], ends


class StoredBuckets(NamedTuple):
    """What tables have in the buckets of n rows before the batch."""

    sizes: I64
    """(n, tables): live anchors in the exact buckets."""
    reserves: ProbedReserves | None
    """None if there are no reserves."""


class _Kept(NamedTuple):
    """The b buckets of a batch, as far as they are kept, and who enters and probes them, by row."""

    cells: I64
    """As in `Buckets`, like the next three."""
    entered: I32
    probed: I32
    crowd: I64
    probing: I32
    """The row that probes each of `probed`."""
    room: I64
    """Number of rows that may enter each bucket, 0 for those that are not kept (b,)."""
    crowded: CrowdedBuckets


def shared_buckets(
    colliding: Collisions, words: U64, fingerprints: U64, stored: StoredBuckets | None, cap: int | None
) -> tuple[Buckets, CrowdedBuckets]:
    """The buckets that one row of a batch of n enters and another probes, empty as yet.

    `words` are (n, W), `fingerprints` (n, lanes). `stored` is None without a cap.
    """
    rows, lanes = len(words), fingerprints.size // len(fingerprints)
    pairs, tabled = len(colliding.bucket_of) // rows, len(colliding.entering)
    tables, further = pairs, np.zeros(rows, np.bool_)
    before = np.zeros(tabled, np.int64)
    if stored is not None:
        before[colliding.bucket_of] = stored.sizes.ravel()
    brink = before + colliding.entering > (sys.maxsize if cap is None or stored is None else cap)
    kept = _kept_in_tables(rows, colliding, before, brink)
    if stored is not None and stored.reserves is not None:
        tables, further = BUCKETS, stored.reserves.further
        kept = kept._replace(cells=kept.cells + kept.cells // PAIRS * (BUCKETS - PAIRS))
        if len(stored.reserves.rows):
            kept = _with_reserves(kept, words, stored.reserves)
    room = int(kept.room.sum())
    buckets = Buckets(
        tables=tables,
        pairs=pairs,
        cap=cap or 0,
        fingerprints=np.ascontiguousarray(fingerprints.reshape(rows, lanes)),
        words=words,
        probed=kept.probed,
        probed_end=np.searchsorted(kept.probing, np.arange(rows + 1, dtype=np.int32)),
        cells=kept.cells,
        entered=kept.entered,
        entered_end=np.searchsorted(kept.cells, np.arange(rows + 1) * tables),
        crowd=kept.crowd,
        tabled=tabled,
        further=further,
        stayed_out=np.zeros(tabled, np.bool_),
        crowded=len(kept.crowded.keys) > 0,
        first=np.cumsum(kept.room) - kept.room,
        size=np.zeros(len(kept.room), np.int64),
        members=np.empty(room, np.int64),
        prints=np.empty(room + LOOKED_AT_ONCE, np.uint64),
        minima=np.empty(room + LOOKED_AT_ONCE, np.uint64),
        abridged=abridged_minima(words),
        skipped=np.zeros(rows, np.uint64),
        seen_by=np.full(rows, -1, np.int64),
        expected=np.full(1, RANKS - 1),
        nearby=np.empty(rows, np.int64),
        apart=np.empty(rows, np.int64),
        ranks=np.empty(rows, np.int64),
        at_rank=np.empty(RANKS, np.int64),
    )
    return buckets, kept.crowded


def _kept_in_tables(rows: int, colliding: Collisions, before: I64, brink: NDArray[np.bool_]) -> _Kept:
    """The buckets of so many rows in tables that somebody probes, or that may be full when somebody comes.
    `before` are live anchors, and `brink` whether a bucket may become full, of each bucket (b,)."""
    keys, bucket_of, entering = colliding
    tables, kept = len(bucket_of) // rows, brink | (entering > 1)
    cells, crowded = np.flatnonzero(kept[bucket_of]), np.flatnonzero(brink)
    probing = cells[entering[bucket_of[cells]] > 1]
    return _Kept(
        cells=cells,
        entered=bucket_of[cells],
        probed=bucket_of[probing],
        crowd=np.where(brink, before, -1),
        probing=(probing // tables).astype(np.int32),
        room=np.where(kept, entering, 0),
        crowded=CrowdedBuckets(keys[crowded], crowded),
    )


def _with_reserves(kept: _Kept, words: U64, stored: ProbedReserves) -> _Kept:
    """The buckets, and the reserves of all rows that may look there. All of them are kept."""
    row = np.repeat(stored.rows, RESERVES)
    keys, of_keys = numbered(keys_of_reserves(words[stored.rows]).ravel())
    sizes, first = np.zeros(len(keys), np.int64), len(kept.room)
    sizes[of_keys] = stored.sizes.ravel()
    counts = np.bincount(of_keys, minlength=len(keys))
    bucket = of_keys + np.int32(first)
    shared = np.flatnonzero(counts[of_keys] > 1)
    reserve = np.tile(np.arange(RESERVES), len(stored.rows))
    cells, entered = _merged(kept.cells, kept.entered, row * BUCKETS + PAIRS + reserve, bucket)
    probing, probed = _merged(kept.probing, kept.probed, row[shared].astype(np.int32), bucket[shared])
    return _Kept(
        cells=cells,
        entered=entered,
        probed=probed,
        crowd=np.concatenate([kept.crowd, sizes]),
        probing=probing,
        room=np.concatenate([kept.room, counts]),
        crowded=CrowdedBuckets(
            np.concatenate([kept.crowded.keys, keys]),
            np.concatenate([kept.crowded.buckets, first + np.arange(len(keys))]),
        ),
    )


def _merged(
    one: NDArray[Any], of_one: NDArray[Any], other: NDArray[Any], of_other: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Two sorted columns as one, and the values of both in its order."""
    both = np.concatenate([one, other])
    order = np.argsort(both, kind="stable")
    return both[order], np.concatenate([of_one, of_other])[order]


@inlined
def looks_around(row: int, buckets: Buckets) -> tuple[bool, bool]:
    """Whether `row` looks into its reserves, as an anchor stayed out of one of its buckets in tables (rule
    16), and whether none of its pairs is open."""
    further, full, crowd, cap = buckets.further[row], 0, buckets.crowd, buckets.cap
    if buckets.crowded:
        for i in range(buckets.entered_end[row], buckets.entered_end[row + 1]):
            bucket = buckets.entered[i]
            full += crowd[bucket] >= cap and buckets.cells[i] % buckets.tables < ALL_PAIRS
            if bucket < buckets.tabled:
                further |= buckets.stayed_out[bucket]
    return further, full == ALL_PAIRS


@inlined
def enter(row: int, buckets: Buckets) -> None:
    """Enter `row` as an anchor into its buckets (rule 16): into those in tables that are not full, in place
    of each full one into the next of its reserves that is not full, and if none is open, into the last
    resort."""
    first, end = buckets.entered_end[row], buckets.entered_end[row + 1]
    if first == end:
        return
    tables, pairs, cap = buckets.tables, buckets.pairs, buckets.cap
    cells, entered, crowd = buckets.cells[first:end], buckets.entered[first:end], buckets.crowd
    skipped, one = np.uint64(0), np.uint64(1)
    left = 0
    for i in range(len(cells)):
        table, size = cells[i] % tables, crowd[entered[i]]
        if table < pairs:
            if size >= cap and size >= 0:
                skipped |= one << np.uint64(table)
                buckets.stayed_out[entered[i]] = True
                left += 1
        elif left and size < cap and (table < pairs + LAST_RESORT or left == pairs):
            skipped |= one << np.uint64(table)
            left -= 1
    buckets.skipped[row] = skipped
    firsts, sizes, members = buckets.first, buckets.size, buckets.members
    prints, minima, own, own_minima = buckets.prints, buckets.minima, buckets.fingerprints, buckets.abridged
    for i in range(len(cells)):
        if is_inside(skipped, cells[i] % tables, pairs):
            bucket = entered[i]
            crowd[bucket] += crowd[bucket] >= 0
            place = firsts[bucket] + sizes[bucket]
            members[place], prints[place], minima[place] = row, own[row, 0], own_minima[row]
            sizes[bucket] += 1


@compiled
def is_inside(skipped: np.uint64, table: np.int64, pairs: int) -> bool:
    """Whether an anchor with this mask is in its bucket in a table, or in a reserve."""
    return bool((skipped >> np.uint64(table) & np.uint64(1) != np.uint64(0)) == (table >= pairs))


@borrowing
def leave(row: int, buckets: Buckets) -> None:
    """Remove the anchor `row` of this batch, which was superseded, from its buckets."""
    members, prints, minima = buckets.members, buckets.prints, buckets.minima
    crowd, sizes, skipped = buckets.crowd, buckets.size, buckets.skipped[row]
    for i in range(buckets.entered_end[row], buckets.entered_end[row + 1]):
        if not is_inside(skipped, buckets.cells[i] % buckets.tables, buckets.pairs):
            continue
        bucket = buckets.entered[i]
        crowd[bucket] -= crowd[bucket] >= 0
        sizes[bucket] -= 1
        start, end = buckets.first[bucket], buckets.first[bucket] + sizes[bucket]
        at = start + np.searchsorted(members[start : end + 1], row)
        for to in range(at, end):
            members[to], prints[to], minima[to] = members[to + 1], prints[to + 1], minima[to + 1]


@inlined
def members_near(
    row: int, further: bool, within: Integer, reach: Integer, most: int, buckets: Buckets
) -> tuple[int, int]:
    """Write to `buckets.nearby` the live anchors of this batch in buckets that `row` probes, in reserves if
    it looks `further`, that are at most `within` bits from it and have at most the rank `reach`, and to
    `buckets.apart` and `buckets.ranks` their distances and ranks. Returns their number, and the number of
    members in those buckets.

    If there are more than `most`, some may be left out that are not among the `most` of the least rank; of
    those of equal rank, the oldest come first.
    """
    first_probed, end_probed = buckets.probed_end[row], buckets.probed_end[row + 1]
    if first_probed == end_probed:  # as most rows
        return 0, 0
    members, nearby, apart, ranks = buckets.members, buckets.nearby, buckets.apart, buckets.ranks
    prints, minima, fingerprints, keys = buckets.prints, buckets.minima, buckets.fingerprints, buckets.words
    own, own_minima, lanes = fingerprints[row, 0], buckets.abridged[row], fingerprints.shape[1]
    sizes, firsts, seen_by, expected = buckets.size, buckets.first, buckets.seen_by, buckets.expected
    at_rank, one = buckets.at_rank, np.uint64(1)
    at_rank[:] = 0
    # Of `inside` members, whose rank is `reach` at most, the youngest is `youngest` or older.
    count, inside, youngest = 0, 0, np.int64(-1)
    within, farthest = np.int64(within), np.int64(reach)
    reach, step = min(farthest, expected[0]), np.int64(FURTHER)
    while True:
        looked = 0
        for bucket in buckets.probed[first_probed:end_probed]:
            if bucket >= buckets.tabled and not further:
                continue
            size, first = sizes[bucket], firsts[bucket]
            looked += size
            for start in range(first, first + size, LOOKED_AT_ONCE):
                # Of equal rank, none counts after `most` older ones. Members are in order of age.
                bound = reach - (inside >= most and members[start] > youngest)
                near = perhaps_near(prints, minima, start, own, own_minima, within, bound)
                left = first + size - start
                if left < LOOKED_AT_ONCE:
                    near &= (one << np.uint64(left)) - one
                while near:
                    at = start + lowest_place(near)
                    near &= near - one
                    member = members[at]
                    if seen_by[member] == row:
                        continue
                    bits = popcount(prints[at] ^ own)
                    for lane in range(1, lanes):
                        bits += popcount(fingerprints[row, lane] ^ fingerprints[member, lane])
                    rank = rank_of(bits, keys, row, keys, member)
                    if bits > within or rank > reach:
                        continue
                    seen_by[member] = row
                    if rank == reach and inside >= most and member > youngest:
                        continue
                    nearby[count], apart[count], ranks[count] = member, bits, rank
                    count += 1
                    inside += 1
                    youngest = max(youngest, member)
                    at_rank[rank] += 1
                    while inside - at_rank[reach] >= most:  # of all, none of greater rank than those
                        inside -= at_rank[reach]
                        reach -= 1
        if inside >= most:
            expected[0] = reach + 1
            break
        if reach == farthest:
            break
        reach, step = min(farthest, reach + step), 4 * step  # all up to `reach` are there
    kept = 0
    for i in range(count):
        nearby[kept], apart[kept], ranks[kept] = nearby[i], apart[i], ranks[i]
        kept += ranks[i] <= reach
    return kept, looked

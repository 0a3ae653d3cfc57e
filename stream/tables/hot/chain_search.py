"""The compiled search of the hot tier: follows the chains of probed slots.

The cost of a probe is a cache miss in a large array. Eight slots share a chain, and a presence bit per slot
is checked first, so few probes follow a chain. Those of several rows are followed together, step by step:
memory is prefetched for all before it is read, so that many cache misses overlap.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled, inlined, popcount, prefetch
from stream.tables.arrays import I64, U32, U64
from stream.tables.design import TABLE_BITS
from stream.tables.hot.chain_copies import (
    NUMBER,
    Bucket,
    Copies,
    Wanted,
    all_near,
    copy_bucket,
    keep_near,
    no_copies,
    place_of,
)
from stream.tables.hot.chains import Chains, Ring, ring_row
from stream.tables.hot.slots import slot_of
from stream.tables.search.nearest import KEPT_AT_ONCE, Kept, keep_alive
from stream.tables.search.packed_pairs import (
    PackedPairs,
    add_pair,
    count_live,
    is_dead,
    no_pairs,
    pack_pair,
    with_room,
)
from stream.tables.search.prefixes_compiled import PROBES_AT_ONCE, prefix_of
from stream.tables.search.queries import Criteria, Queries
from stream.tables.search.rank import abridged_minima_of, rank_of

LONG: Final = 64
"""Steps along a chain after which the rest of the bucket is copied to contiguous memory. Many rows of spam
follow the same chain, and a step along a chain takes ten times as long as one in contiguous memory."""
FEW: Final = 1
"""Steps after which it is copied if only the nearest anchors are wanted."""


class Walk(NamedTuple):
    """Room for some probes, and for the chains that they follow."""

    slot: U32
    """Slots of all probes."""
    occupied: I64
    """Indexes of the probes whose slot has anchors."""
    current: U32
    """Where each chain is: number + 1 of an anchor, as in `Chains`."""
    row: I64
    """The query that follows each chain."""
    table: I64
    """The table of each chain."""
    exact: NDArray[np.bool_]
    """Whether each chain is followed by the exact probe."""
    wanted: U64
    """The probed prefix for which each chain is followed."""
    at: I64
    """Row of each chain's anchor in the ring buffer."""
    prefix: U64
    """That anchor's prefix in the table."""
    following: U32
    """Number + 1 of the next anchor of each chain."""


class Search(NamedTuple):
    """The arguments of `follow`."""

    chains: Chains
    ring: Ring
    queries: Queries
    criteria: Criteria
    kept: Kept


@compiled
def follow(chains: Chains, ring: Ring, queries: Queries, criteria: Criteria, kept: Kept) -> U64:
    """Pairs of a row and an anchor in a bucket that it probes, packed as in `PairCollector`, with
    repetitions. If there is a limit, these are in `kept` instead. Counts the live anchors in exact buckets.
    """
    rows, probes_a_row = len(queries.keys), queries.keys.shape[1] * len(queries.tree.parents)
    at_once = max(1, PROBES_AT_ONCE // probes_a_row)
    walk, copies, pairs = _room(at_once * probes_a_row), no_copies(queries.words.shape[1]), no_pairs()
    long = FEW if kept.most <= KEPT_AT_ONCE else LONG
    for first in range(0, rows, at_once):
        if pairs.size >= criteria.enough:
            break
        probes = _probe(chains, queries, kept.order, (first, min(rows, first + at_once)), walk)
        left = _begin(Search(chains, ring, queries, criteria, kept), first, probes, walk)
        steps = 0
        while left and steps < long:
            left, pairs = _step(Search(chains, ring, queries, criteria, kept), walk, left, pairs)
            steps += 1
        if left:
            search = Search(chains, ring, queries, criteria, kept)
            copies, pairs = _finish(search, walk, left, copies, pairs)
    return pairs.packed[: pairs.size]


@inlined
def _room(probes: int) -> Walk:
    (slot, current, following), (wanted, prefix) = (
        np.empty((3, probes), np.uint32),
        np.empty((2, probes), np.uint64),
    )
    occupied, row, table, at = np.empty((4, probes), np.int64)
    return Walk(
        slot, occupied, current, row, table, np.empty(probes, np.bool_), wanted, at, prefix, following
    )


@inlined
def _probe(chains: Chains, queries: Queries, order: I64, some: tuple[int, int], walk: Walk) -> int:
    """Write the slots that some queries [first, end) probe to `walk.slot`, counted in `Kept.order`. Returns
    their number."""
    keys, bits, (parents, added), slot = queries.keys, queries.bits, queries.tree, walk.slot
    flips, present, fold = chains.flips, chains.present, chains.fold
    probes, count = len(parents), 0
    for turn in range(some[0], some[1]):
        row = order[turn] if len(order) else turn
        for table in range(keys.shape[1]):
            slot[count] = slot_of(keys[row, table] >> np.uint64(TABLE_BITS), fold, table)
            for probe in range(1, probes):
                flipped = flips[bits[added[probe], row, table], table]
                slot[count + probe] = slot[count + parents[probe]] ^ flipped
            for probe in range(probes):
                prefetch(present, np.uint64(slot[count + probe] >> np.uint32(3)))
            count += probes
    return count


@inlined
def _begin(search: Search, first: int, count: int, walk: Walk) -> int:
    """Begin the chains of the probed slots that have anchors. Returns the number of chains.

    `count` slots are probed, by the queries from `first` on, counted in `Kept.order`.
    """
    chains, ring, queries, _, kept = search
    floor, order = ring.floor, kept.order
    newest, present, shared = chains.newest, chains.present, np.uint32(chains.sharing)
    keys, bits, (parents, added) = queries.keys, queries.bits, queries.tree
    tables, probes = keys.shape[1], len(parents)
    slots, which = walk.slot, walk.occupied
    occupied = np.int64(0)
    for i in range(count):  # branch-free: a branch would be mispredicted
        slot = slots[i]
        which[occupied] = i
        occupied += present[slot >> np.uint32(3)] >> np.uint8(slot & np.uint32(7)) & np.uint8(1)
    for i in range(occupied):
        prefetch(newest, np.uint64(slots[which[i]] >> shared))
    _, _, current, row_of, table_of, exact, wanted, _, _, _ = walk
    left = np.int64(0)
    for i in range(occupied):
        pair = which[i] // probes
        probe, turn, table = which[i] - pair * probes, first + pair // tables, pair % tables
        row = order[turn] if len(order) else turn
        current[left], exact[left] = newest[slots[which[i]] >> shared], probe == 0
        row_of[left], table_of[left] = row, table
        key = keys[row, table]
        while probe:
            key ^= queries.key_flip[bits[added[probe], row, table], table]
            probe = parents[probe]
        wanted[left] = key >> np.uint64(TABLE_BITS)
        left += current[left] > floor
    return int(left)


@inlined
def _step(search: Search, walk: Walk, left: int, pairs: PackedPairs) -> tuple[int, PackedPairs]:
    """Compare each chain's anchor with its query, and go on to the next one. Returns the number of chains
    that have one, and the pairs."""
    chains, ring, queries, criteria, kept = search
    _load(ring, chains, walk, left)
    rows, floor, shift, tables = ring.rows, ring.floor, ring.shift, chains.links.shape[1]
    fingerprints, words, sizes, (distance, dead, _) = (
        queries.fingerprints, queries.words, queries.sizes, criteria,
    )  # fmt: skip
    _, _, currents, row_of, table_of, exacts, wanteds, at, prefixes, followings = walk
    still, limits = np.int64(0), kept.most <= KEPT_AT_ONCE
    for i in range(left):
        row, table, exact, wanted = row_of[i], table_of[i], exacts[i], wanteds[i]
        if prefixes[i] == wanted:
            number = np.int64(currents[i]) + shift
            if exact:
                count_live(sizes, row * tables + table, number, dead)
            apart = popcount(rows[at[i], -1] ^ fingerprints[row])
            if apart <= distance:
                if not limits:
                    pairs = add_pair(pairs, row, number, apart)
                elif not is_dead(number, dead):
                    rank = rank_of(apart, words, row, rows, at[i])
                    keep_alive(kept, row, rank, number, apart)
        currents[still], row_of[still], table_of[still] = followings[i], row, table
        exacts[still], wanteds[still] = exact, wanted
        still += followings[i] > floor
    return int(still), pairs


@inlined
def _load(ring: Ring, chains: Chains, walk: Walk, left: int) -> None:
    """Load the prefix of each chain's anchor, and the next one's number."""
    rows, links, tables = ring.rows, chains.links, chains.links.shape[1]
    rows_flat, links_flat, width = rows.ravel(), links.ravel(), rows.shape[1]
    current, table, at, prefix, following = walk.current, walk.table, walk.at, walk.prefix, walk.following
    for i in range(left):
        at[i] = ring_row(ring, current[i])
        prefetch(rows_flat, np.uint64(width * at[i]))
        prefetch(links_flat, np.uint64(at[i] * tables + table[i]))
    for i in range(left):
        prefix[i] = prefix_of(rows, at[i], chains.pieces, table[i])
        following[i] = links[at[i], table[i]]


@inlined
def _finish(
    search: Search, walk: Walk, left: int, copies: Copies, pairs: PackedPairs
) -> tuple[Copies, PackedPairs]:
    """Compare the rest of long chains, in copies of the buckets."""
    chains, ring, queries, criteria, kept = search
    distance, words, tables = criteria.distance, queries.words, queries.keys.shape[1]
    fingerprints, sizes, limits = queries.fingerprints, queries.sizes, kept.most <= KEPT_AT_ONCE
    row_of, table_of, currents, exact, wanted_of = walk.row, walk.table, walk.current, walk.exact, walk.wanted
    places, prefixes, numbers, prints, near_at = (
        copies.places, copies.prefixes, copies.numbers, copies.prints, copies.near,
    )  # fmt: skip
    for i in range(left):
        row, bucket = row_of[i], Bucket(np.int64(currents[i]), table_of[i], wanted_of[i])
        start, table, prefix = bucket
        place = place_of(bucket, chains)
        if places[place, 0] != start or places[place, 1] != table or prefixes[place] != prefix:
            copies = copy_bucket(bucket, chains, ring, criteria.dead, kept, copies)
            numbers, prints, near_at = copies.numbers, copies.prints, copies.near
        first, end = places[place, 2], places[place, 3]
        if exact[i] and sizes.size:
            sizes[row * tables + table] += end - first
        wanted = Wanted(fingerprints[row], abridged_minima_of(words, row), words, row)
        if limits:
            keep_near(copies, first, end, wanted, kept)
            continue
        near = all_near(copies, first, end, wanted, distance)
        packed, size = with_room(pairs, near)
        for near_place in range(near):
            at = first + near_at[near_place]
            apart = popcount(prints[at] ^ wanted.fingerprint)
            packed[size] = pack_pair(row, numbers[at] & NUMBER, apart)
            size += 1
        pairs = PackedPairs(packed, size)
    return copies, pairs

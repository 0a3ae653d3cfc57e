"""The compiled search of the hot tier: follows the chains of probed slots.

The cost of a probe is a cache miss in a large array. Eight slots share a chain, and a presence bit per slot
is checked first, so few probes follow a chain. Those of several rows are followed together, step by step:
memory is prefetched for all before it is read, so that many cache misses overlap.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from stream.compiled import borrowing, compiled, inlined, popcount, prefetch
from stream.tables.arrays import I64, U32, U64
from stream.tables.design import TABLE_BITS
from stream.tables.hot.chain_copies import (
    Bucket,
    Copies,
    all_near,
    copy_bucket,
    no_copies,
    place_of,
)
from stream.tables.hot.chains import Chains, Ring, ring_row
from stream.tables.hot.slots import slot_of
from stream.tables.search.packed_pairs import (
    PackedPairs,
    count_live,
    no_pairs,
    pack_pair,
    with_room,
)
from stream.tables.search.prefixes_compiled import PROBES_AT_ONCE, prefix_of
from stream.tables.search.queries import Criteria, Queries

LONG: Final = 64
"""Steps along a chain after which the rest of the bucket is copied to contiguous memory. Many rows of spam
follow the same chain, and a step along a chain takes ten times as long as one in contiguous memory."""


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


@compiled
def follow(chains: Chains, ring: Ring, queries: Queries, criteria: Criteria) -> U64:
    """Pairs of a row and an anchor in a bucket that it probes, packed as in `PairCollector`, with
    repetitions. Counts the live anchors in buckets."""
    rows, tables = queries.keys.shape
    at_once = max(1, PROBES_AT_ONCE // tables)
    walk, copies, pairs = _room(at_once * tables), no_copies(), no_pairs()
    for first in range(0, rows, at_once):
        if pairs.size >= criteria.enough:
            break
        probes = _probe(chains, queries, (first, min(rows, first + at_once)), walk)
        left = _begin(Search(chains, ring, queries, criteria), first, probes, walk)
        steps = 0
        while left and steps < LONG:
            pairs = with_room(pairs, left)
            left, size = _step(Search(chains, ring, queries, criteria), walk, left, pairs)
            pairs, steps = PackedPairs(pairs.packed, size), steps + 1
        done, search = 0, Search(chains, ring, queries, criteria)
        while done < left:
            done, size, more = _add_copied(search, walk, (done, left), copies, pairs)
            pairs = with_room(PackedPairs(pairs.packed, size), more)
            if done < left and not more:
                copies = copy_bucket(_bucket(walk, done), chains, ring, criteria.dead, copies)
    return pairs.packed[: pairs.size]


@compiled
def _room(probes: int) -> Walk:
    (slot, current, following), (wanted, prefix) = (
        np.empty((3, probes), np.uint32),
        np.empty((2, probes), np.uint64),
    )
    occupied, row, table, at = np.empty((4, probes), np.int64)
    return Walk(slot, occupied, current, row, table, wanted, at, prefix, following)


@borrowing
def _probe(chains: Chains, queries: Queries, some: tuple[int, int], walk: Walk) -> int:
    """Write the slots that some queries [first, end) probe to `walk.slot`. Returns their number."""
    keys, slot, present, fold = queries.keys, walk.slot, chains.present, chains.fold
    count = 0
    for row in range(some[0], some[1]):
        for table in range(keys.shape[1]):
            slot[count] = slot_of(keys[row, table] >> np.uint64(TABLE_BITS), fold, table)
            prefetch(present, np.uint64(slot[count] >> np.uint32(3)))
            count += 1
    return count


@borrowing
def _begin(search: Search, first: int, count: int, walk: Walk) -> int:
    """Begin the chains of the probed slots that have anchors. Returns the number of chains.

    `count` slots are probed, by the queries from `first` on.
    """
    chains, ring, queries, _ = search
    floor = ring.floor
    newest, present, shared = chains.newest, chains.present, np.uint32(chains.sharing)
    keys, tables = queries.keys, queries.keys.shape[1]
    slots, which = walk.slot, walk.occupied
    occupied = np.int64(0)
    for i in range(count):  # branch-free: a branch would be mispredicted
        slot = slots[i]
        which[occupied] = i
        occupied += present[slot >> np.uint32(3)] >> np.uint8(slot & np.uint32(7)) & np.uint8(1)
    for i in range(occupied):
        prefetch(newest, np.uint64(slots[which[i]] >> shared))
    _, _, current, row_of, table_of, wanted, _, _, _ = walk
    left = np.int64(0)
    for i in range(occupied):
        row, table = first + which[i] // tables, which[i] % tables
        current[left] = newest[slots[which[i]] >> shared]
        row_of[left], table_of[left] = row, table
        wanted[left] = keys[row, table] >> np.uint64(TABLE_BITS)
        left += current[left] > floor
    return int(left)


@borrowing
def _step(search: Search, walk: Walk, left: int, pairs: PackedPairs) -> tuple[int, int]:
    """Compare each chain's anchor with its query, and go on to the next one. Returns the number of chains
    that have one, and that of pairs, for which there is room."""
    chains, ring, queries, criteria = search
    _load(ring, chains, walk, left)
    rows, floor, shift, tables = ring.rows, ring.floor, ring.shift, chains.links.shape[1]
    fingerprints, sizes, (distance, dead, _) = queries.fingerprints, queries.sizes, criteria
    _, _, currents, row_of, table_of, wanteds, at, prefixes, followings = walk
    packed, size, still = pairs.packed, pairs.size, np.int64(0)
    for i in range(left):
        row, table, wanted = row_of[i], table_of[i], wanteds[i]
        if prefixes[i] == wanted:
            number = np.int64(currents[i]) + shift
            count_live(sizes, row * tables + table, number, dead)
            apart = popcount(rows[at[i], -1] ^ fingerprints[row])
            if apart <= distance:
                packed[size] = pack_pair(row, number, apart)
                size += 1
        currents[still], row_of[still], table_of[still] = followings[i], row, table
        wanteds[still] = wanted
        still += followings[i] > floor
    return int(still), size


@inlined
def _load(ring: Ring, chains: Chains, walk: Walk, left: int) -> None:
    """Load the prefix of each chain's anchor, and the next one's number."""
    rows, links, tables = ring.rows, chains.links, chains.links.shape[1]
    width = rows.shape[1]
    current, table, at, prefix, following = walk.current, walk.table, walk.at, walk.prefix, walk.following
    for i in range(left):
        at[i] = ring_row(ring, current[i])
        prefetch(rows, np.uint64(width * at[i]))
        prefetch(links, np.uint64(at[i] * tables + table[i]))
    for i in range(left):
        prefix[i] = prefix_of(rows, at[i], chains.pieces, table[i])
        following[i] = links[at[i], table[i]]


@inlined
def _bucket(walk: Walk, chain: int) -> Bucket:
    """What is left of the bucket for which a chain is followed."""
    return Bucket(np.int64(walk.current[chain]), walk.table[chain], walk.wanted[chain])


@inlined
def _count_copied(queries: Queries, walk: Walk, chain: int, anchors: np.int64) -> None:
    """Count the live anchors of a copy in the bucket for which a chain is followed."""
    if queries.sizes.size:
        queries.sizes[walk.row[chain] * queries.keys.shape[1] + walk.table[chain]] += anchors


@borrowing
def _add_copied(
    search: Search, walk: Walk, chains: tuple[int, int], copies: Copies, pairs: PackedPairs
) -> tuple[int, int, int]:
    """Add the pairs in the copies of the buckets for which the chains [first, end) are followed, as far as
    there is room. Returns the chain to go on with, the number of pairs, and how many that chain may add; 0 if
    its bucket is not copied."""
    queries, places, numbers, prints = search.queries, copies.places, copies.numbers, copies.prints
    (packed, size), fingerprints, row_of = pairs, queries.fingerprints, walk.row
    for chain in range(chains[0], chains[1]):
        place = place_of(_bucket(walk, chain), search.chains, copies)
        if place < 0:
            return chain, size, 0
        row, first, end = row_of[chain], places[place, 2], places[place, 3]
        if size + end - first > len(packed):
            return chain, size, int(end - first)
        _count_copied(queries, walk, chain, end - first)
        own = fingerprints[row]
        for near in range(all_near(copies, first, end, own, search.criteria.distance)):
            at = first + copies.near[near]
            packed[size] = pack_pair(row, numbers[at], popcount(prints[at] ^ own))
            size += 1
    return chains[1], size, 0

"""Finds the bucket collisions within a batch: rows that probe a bucket which other rows may enter."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from stream.compiled import compiled
from stream.tables.arrays import I32, U8, U32, U64
from stream.tables.search.probes import ProbeTree

_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = 1 << 14


class BatchProbes(NamedTuple):
    """What n rows probe in T tables."""

    keys: U64
    """(n, T): keys of the exact buckets."""
    bits: U8
    """(F, n, T): the bits that may be flipped, as in `Queries`."""
    key_flip: U64
    """(width + 1, T): what a bit flips in keys."""
    tree: ProbeTree


class Filter(NamedTuple):
    """A bit set of the buckets that rows enter, which rejects nearly all probes."""

    slots: U32
    """(n, T): positions of the exact buckets."""
    flips: U32
    """(width + 1, T): what a bit flips in positions."""
    filled: U8
    """The bit set, initially empty."""


class Collisions(NamedTuple):
    """The b exact buckets of n rows in T tables, and m pairs of a row and a bucket that it probes: with
    flipped bits, or exactly along with other rows."""

    bucket_of: I32
    """(n * T,): bucket of each row and table."""
    entering: I32
    """(b,): number of rows that enter each bucket."""
    row: I32
    """(m,), ascending."""
    bucket: I32
    """(m,)"""


@compiled
def numbered(keys: U64) -> tuple[U64, I32]:
    """Return the distinct keys among n, in the order in which they come, and the index there of each (n,).

    With a batch of one template, sorting takes ten times as long.
    """
    places, top = 16, np.uint64(60)
    while places < 2 * len(keys):
        places *= 2
        top -= np.uint64(1)
    at = np.zeros(places, np.int32)  # hash table of index + 1, with linear probing
    some, of_keys, count = np.empty(len(keys), np.uint64), np.empty(len(keys), np.int32), 0
    for i in range(len(keys)):
        place = np.int64(keys[i] * _MIX >> top)
        while at[place] and some[at[place] - 1] != keys[i]:
            place = (place + 1) & (places - 1)
        if not at[place]:
            some[count] = keys[i]
            count += 1
            at[place] = count
        of_keys[i] = at[place] - 1
    return some[:count].copy(), of_keys


@compiled
def collisions(probed: BatchProbes, by_slot: Filter) -> Collisions:
    """Number the exact buckets of the rows, and find the rows that probe them."""
    (keys, bits, key_flip, (parents, added)), (slots, slot_flips, filled) = probed, by_slot
    rows, tables = keys.shape
    places = 16
    while places < 4 * rows * tables:
        places *= 2
    top = np.uint64(64)
    size = places
    while size > 1:
        size //= 2
        top -= np.uint64(1)
    at = np.zeros(places, np.int32)  # hash table of bucket number + 1, with linear probing
    key_of = np.empty(rows * tables, np.uint64)
    entering = np.zeros(rows * tables, np.int32)
    bucket_of = np.empty(rows * tables, np.int32)
    buckets = 0
    for row in range(rows):
        for table in range(tables):
            key = keys[row, table]
            place = np.int64(key * _MIX >> top)
            while at[place] and key_of[at[place] - 1] != key:
                place = (place + 1) & (places - 1)
            if not at[place]:
                key_of[buckets] = key
                buckets += 1
                at[place] = buckets
                slot = slots[row, table]
                filled[slot >> np.uint32(3)] |= np.uint8(1) << np.uint8(slot & np.uint32(7))
            bucket_of[row * tables + table] = at[place] - 1
            entering[at[place] - 1] += 1

    pair_row, pair_bucket, pairs = np.empty(_FIRST, np.int32), np.empty(_FIRST, np.int32), 0
    probes = len(parents)
    single, slot_of = np.empty(bits.shape[0], np.uint32), np.empty(probes, np.uint32)
    for row in range(rows):
        needed = pairs + tables * probes
        if needed > len(pair_row):
            more_rows, more_buckets = np.empty(2 * needed, np.int32), np.empty(2 * needed, np.int32)
            more_rows[:pairs], more_buckets[:pairs] = pair_row[:pairs], pair_bucket[:pairs]
            pair_row, pair_bucket = more_rows, more_buckets
        for table in range(tables):
            for flip in range(bits.shape[0]):
                single[flip] = slot_flips[bits[flip, row, table], table]
            slot_of[0] = slots[row, table]
            bucket = bucket_of[row * tables + table]
            if entering[bucket] > 1:
                pair_row[pairs], pair_bucket[pairs] = row, bucket
                pairs += 1
            for probe in range(1, probes):
                slot = slot_of[parents[probe]] ^ single[added[probe]]
                slot_of[probe] = slot
                if filled[slot >> np.uint32(3)] >> np.uint8(slot & np.uint32(7)) & np.uint8(1):
                    key, step = keys[row, table], probe
                    while step:
                        key ^= key_flip[bits[added[step], row, table], table]
                        step = parents[step]
                    place = np.int64(key * _MIX >> top)
                    while at[place] and key_of[at[place] - 1] != key:
                        place = (place + 1) & (places - 1)
                    if at[place]:
                        pair_row[pairs], pair_bucket[pairs] = row, at[place] - 1
                        pairs += 1
    return Collisions(bucket_of, entering[:buckets], pair_row[:pairs], pair_bucket[:pairs])

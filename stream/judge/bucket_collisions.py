"""Finds the bucket collisions within a batch: rows that probe a bucket which other rows may enter."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled

_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = 1 << 14


@compiled
def meetings(
    keys: NDArray[np.uint64],
    slots: NDArray[np.uint32],
    filled: NDArray[np.uint8],
    bits: NDArray[np.uint8],
    key_flips: NDArray[np.uint64],
    slot_flips: NDArray[np.uint32],
    parents: NDArray[np.int64],
    added: NDArray[np.int64],
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """Number the exact buckets of n rows in T tables, and find the rows that probe them.

    `keys` (n, T) are the exact keys of the rows, and `slots` (n, T) their positions in `filled`, an empty bit
    set that rejects nearly all probes. `bits` (F, n, T) are the bits to flip. `key_flips` and `slot_flips`
    (width + 1, T) are what a bit flips in keys and slots. `parents` and `added` (P,) are a `ProbeTree`.

    Returns the bucket of each row and table (n * T,), the number of rows that enter each bucket, and the rows
    and buckets of m collisions: a row probes the bucket with flipped bits, or exactly along with other rows.
    """
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

    met_row, met_bucket, met = np.empty(_FIRST, np.int32), np.empty(_FIRST, np.int32), 0
    probes = len(parents)
    single, probed = np.empty(bits.shape[0], np.uint32), np.empty(probes, np.uint32)
    for row in range(rows):
        needed = met + tables * probes
        if needed > len(met_row):
            more_rows, more_buckets = np.empty(2 * needed, np.int32), np.empty(2 * needed, np.int32)
            more_rows[:met], more_buckets[:met] = met_row[:met], met_bucket[:met]
            met_row, met_bucket = more_rows, more_buckets
        for table in range(tables):
            for flip in range(bits.shape[0]):
                single[flip] = slot_flips[bits[flip, row, table], table]
            probed[0] = slots[row, table]
            bucket = bucket_of[row * tables + table]
            if entering[bucket] > 1:
                met_row[met], met_bucket[met] = row, bucket
                met += 1
            for probe in range(1, probes):
                slot = probed[parents[probe]] ^ single[added[probe]]
                probed[probe] = slot
                if filled[slot >> np.uint32(3)] >> np.uint8(slot & np.uint32(7)) & np.uint8(1):
                    key, step = keys[row, table], probe
                    while step:
                        key ^= key_flips[bits[added[step], row, table], table]
                        step = parents[step]
                    place = np.int64(key * _MIX >> top)
                    while at[place] and key_of[at[place] - 1] != key:
                        place = (place + 1) & (places - 1)
                    if at[place]:
                        met_row[met], met_bucket[met] = row, at[place] - 1
                        met += 1
    return bucket_of, entering[:buckets], met_row[:met], met_bucket[:met]

"""Finds the bucket collisions within a batch: rows that have a bucket in common."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from stream.compiled import compiled
from stream.tables.arrays import I32, U64

_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


class Collisions(NamedTuple):
    """The b buckets of n rows in T tables, and m pairs of a row and a bucket that other rows have, too."""

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


def collisions(keys: U64) -> Collisions:
    """Number the buckets of n rows in T tables by their keys (n, T), and find the rows that share one."""
    _, bucket_of = numbered(keys.ravel())
    entering = np.bincount(bucket_of).astype(np.int32)
    shared = np.flatnonzero(entering[bucket_of] > 1)
    return Collisions(bucket_of, entering, (shared // keys.shape[1]).astype(np.int32), bucket_of[shared])

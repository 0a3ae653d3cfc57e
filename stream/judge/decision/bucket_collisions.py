"""Finds the bucket collisions within a batch: the buckets in tables that several rows may enter."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from stream.compiled import compiled
from stream.tables.arrays import I32, I64, U64

_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


class Collisions(NamedTuple):
    """The b distinct buckets of n rows in T tables."""

    keys: U64
    """(b,)"""
    bucket_of: I32
    """(n * T,): bucket of each row and table."""
    entering: I64
    """(b,): number of rows that may enter each bucket."""

    @property
    def entering_with(self) -> I64:
        """(n * T,): number of rows that may enter the bucket of each row and table."""
        return self.entering[self.bucket_of]


def collisions(keys: U64) -> Collisions:
    """Number the buckets of rows by their keys (n, T)."""
    some, bucket_of = numbered(keys.ravel())
    return Collisions(some, bucket_of, np.bincount(bucket_of, minlength=len(some)))


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

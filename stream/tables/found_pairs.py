"""What the tiers' compiled loops note down of an anchor that they meet."""

from __future__ import annotations

from typing import Final

import numpy as np

from stream.compiled import compiled
from stream.tables.arrays import I64, U8, U64

Integer = int | np.int64
FIRST_PAIRS: Final = 1 << 12
"""Pairs that a loop begins with room for."""


@compiled
def pack_pair(row: Integer, number: Integer | np.uint64, distance: Integer) -> np.uint64:
    """A row and an anchor as `Found` has them."""
    return np.uint64(row) << np.uint64(40) | np.uint64(number) << np.uint64(8) | np.uint64(distance)


@compiled
def add_pair(pairs: U64, found: int, row: Integer, number: Integer, distance: Integer) -> U64:
    """`pairs`, or a copy with more room, and in it at `found` a row and an anchor as `Found` has them."""
    if found == len(pairs):
        grown = np.empty(2 * found, np.uint64)
        grown[:found] = pairs
        pairs = grown
    pairs[found] = pack_pair(row, number, distance)
    return pairs


@compiled
def is_among(number: Integer, numbers: I64) -> bool:
    """Whether it is one of the numbers, ascending, of which there is one at least."""
    place = np.searchsorted(numbers, number)
    return bool(place < len(numbers) and numbers[place] == number)


@compiled
def is_dead(number: Integer, dead: U8) -> bool:
    """Whether the bit of that anchor is set; those beyond all bits live."""
    byte = number >> 3
    return bool(byte < len(dead) and dead[byte] >> np.uint8(number & 7) & np.uint8(1))


@compiled
def count_live(sizes: I64, bucket: Integer, number: Integer, dead: U8) -> None:
    """One more anchor in a bucket, unless it is dead; with `sizes` of shape (0,), nothing is counted."""
    if sizes.size and not is_dead(number, dead):
        sizes[bucket] += 1

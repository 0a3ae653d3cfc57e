"""How the compiled loops of the tiers record the anchors that they find."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from stream.compiled import compiled
from stream.tables.arrays import I64, U8, U64

Integer = int | np.signedinteger[Any]
FIRST_PAIRS: Final = 1 << 12
"""Initial capacity of an array of pairs."""


@compiled
def pack_pair(row: Integer, number: Integer | np.uint64, distance: Integer) -> np.uint64:
    """A row, an anchor and their distance, packed as in `PairCollector`."""
    return np.uint64(row) << np.uint64(40) | np.uint64(number) << np.uint64(8) | np.uint64(distance)


@compiled
def add_pair(pairs: U64, found: int, row: Integer, number: Integer, distance: Integer) -> U64:
    """Store a packed pair at the index `found`. Returns `pairs`, or a larger copy if it was full."""
    if found == len(pairs):
        grown = np.empty(2 * found, np.uint64)
        grown[:found] = pairs
        pairs = grown
    pairs[found] = pack_pair(row, number, distance)
    return pairs


@compiled
def place_among(number: Integer, numbers: I64) -> int:
    """Index of `number` in `numbers`, which are ascending; -1 if it is not among them."""
    place = np.searchsorted(numbers, number)
    return int(place) if place < len(numbers) and numbers[place] == number else -1


@compiled
def is_dead(number: Integer, dead: U8) -> bool:
    """Whether an anchor is dead by the bitmap `dead` (see `Dead.bits`)."""
    byte = number >> 3
    return bool(byte < len(dead) and dead[byte] >> np.uint8(number & 7) & np.uint8(1))


@compiled
def count_live(sizes: I64, bucket: Integer, number: Integer, dead: U8) -> None:
    """Count an anchor in `sizes[bucket]`, unless it is dead or `sizes` has the shape (0,)."""
    if sizes.size and not is_dead(number, dead):
        sizes[bucket] += 1

"""How the compiled loops of the tiers record the anchors that they find."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from stream.compiled import borrowing, compiled
from stream.tables.arrays import I64, U8, U64

Integer = int | np.signedinteger[Any]
PAIRS_AT_FIRST: Final = 1 << 12
"""Initial capacity of an array of pairs."""


class PackedPairs(NamedTuple):
    """Pairs of a row and an anchor, and room for more. In these loops, numbers of anchors are relative to the
    first one (`Probing.first`)."""

    packed: U64
    """As in `PairCollector`."""
    size: int
    """Number of pairs."""


@compiled
def pack_pair(row: Integer, number: Integer | np.uint64, distance: Integer) -> np.uint64:
    """A row, an anchor and their distance as in `PairCollector`."""
    return np.uint64(row) << np.uint64(40) | np.uint64(number) << np.uint64(8) | np.uint64(distance)


@compiled
def no_pairs() -> PackedPairs:
    """Room for pairs."""
    return PackedPairs(np.empty(PAIRS_AT_FIRST, np.uint64), 0)


@compiled
def grown(column: U64, room: int) -> U64:
    """The column (n,) with room for so many values, of which the first n are its own."""
    larger = np.empty(room, np.uint64)
    larger[: len(column)] = column
    return larger


@compiled
def with_room(pairs: PackedPairs, more: int) -> PackedPairs:
    """The pairs, with room for more of them."""
    packed, size = pairs
    if size + more > len(packed):
        packed = grown(packed, 2 * (size + more))
    return PackedPairs(packed, size)


@compiled
def add_pair(pairs: PackedPairs, row: Integer, number: Integer | np.uint64, distance: Integer) -> PackedPairs:
    """The pairs, and this one."""
    packed, size = with_room(pairs, 1)
    packed[size] = pack_pair(row, number, distance)
    return PackedPairs(packed, size + 1)


@borrowing
def is_dead(number: Integer, dead: U8) -> bool:
    """Whether an anchor is dead by the bitmap `dead` (see `NumberSet.bits`)."""
    byte = number >> 3
    return bool(byte < len(dead) and dead[byte] >> np.uint8(number & 7) & np.uint8(1))


@borrowing
def count_live(sizes: I64, bucket: Integer, number: Integer, dead: U8) -> None:
    """Count an anchor in `sizes[bucket]`, unless it is dead or `sizes` has the shape (0,)."""
    if sizes.size and not is_dead(number, dead):
        sizes[bucket] += 1

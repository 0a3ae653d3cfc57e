"""The first pairs of which an anchor stayed out, as they were full: whoever looks into one of them looks into
all reserves (rule 16)."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled
from stream.tables.arrays import I64, U64

_MIX: Final = np.uint64(0x9E37_79B9_7F4A_7C15)
_FIRST: Final = 1 << 10


class StayedOut(NamedTuple):
    """The keys of buckets, in a hash table with linear probing, and the youngest anchor that stayed out of
    each."""

    keys: U64
    """(2**b,): key + 1, 0 for none; at most half of them are taken."""
    youngest: I64
    """(2**b,): numbers of anchors."""
    size: int


@compiled
def nobody() -> StayedOut:
    """Nobody stayed out of any bucket."""
    return StayedOut(np.zeros(_FIRST, np.uint64), np.zeros(_FIRST, np.int64), 0)


@compiled
def _place(keys: U64, key: np.uint64) -> np.int64:
    """Where the key is, or belongs."""
    mask = np.uint64(len(keys) - 1)
    at = (key * _MIX >> np.uint64(32)) & mask
    while keys[at] and keys[at] != key + np.uint64(1):
        at = (at + np.uint64(1)) & mask
    return np.int64(at)


@compiled
def with_anchors(before: StayedOut, keys: U64, masks: U64, numbers: I64, first: int) -> StayedOut:
    """The same with further anchors (n,), ascending, by the keys of their first buckets (n, T) and the masks
    of those that they stayed out of. Anchors below `first` are gone. The old table may still be read, but has
    only a part of the new ones."""
    taken, youngest, size = before
    for anchor in range(len(numbers)):
        for table in range(keys.shape[1]):
            if not masks[anchor] >> np.uint64(table) & np.uint64(1):
                continue
            at = _place(taken, keys[anchor, table])
            if not taken[at] and 2 * size >= len(taken):
                left = 0
                for i in range(len(taken)):
                    left += int(taken[i] != np.uint64(0) and youngest[i] >= first)
                room = len(taken)
                while room < 4 * left:
                    room *= 2
                grown, of_grown = np.zeros(room, np.uint64), np.zeros(room, np.int64)
                for i in range(len(taken)):
                    if taken[i] and youngest[i] >= first:
                        to = _place(grown, taken[i] - np.uint64(1))
                        grown[to], of_grown[to] = taken[i], youngest[i]
                taken, youngest, size = grown, of_grown, left
                at = _place(taken, keys[anchor, table])
            youngest[at] = numbers[anchor]
            size += int(taken[at] == np.uint64(0))
            taken[at] = keys[anchor, table] + np.uint64(1)
    return StayedOut(taken, youngest, size)


@compiled
def looking_further(stayed_out: StayedOut, keys: U64, first: int) -> NDArray[np.bool_]:
    """Whether an anchor, `first` or a younger one, stayed out of any of the first buckets of each page, given
    their keys (n, T)."""
    further = np.zeros(len(keys), np.bool_)
    for row in range(len(keys)):
        for table in range(keys.shape[1]):
            at = _place(stayed_out.keys, keys[row, table])
            further[row] |= stayed_out.keys[at] != np.uint64(0) and stayed_out.youngest[at] >= first
    return further

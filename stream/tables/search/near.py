"""Looks at many anchors in contiguous memory at a time: which of them may be near."""

from __future__ import annotations

from typing import Final

import numpy as np

from stream.compiled import inlined, popcount
from stream.tables.arrays import U64
from stream.tables.search.packed_pairs import Integer
from stream.tables.search.rank import least_rank

LOOKED_AT_ONCE: Final = 64
"""Anchors that are looked at together: the bits of a mask."""
_ONE: Final = np.uint64(1)


@inlined
def perhaps_near(
    prints: U64,
    minima: U64,
    start: int,
    own: np.uint64,
    own_minima: np.uint64,
    within: np.int64,
    bound: Integer,
) -> np.uint64:
    """Return the bit mask of those of the LOOKED_AT_ONCE anchors from `start` on that may be at most `within`
    bits away and have at most the rank `bound`, by their fingerprints and abridged minima in order.

    There are no branches, and indexes are unsigned, so that the compiler makes vector instructions of it.
    """
    mask = np.uint64(0)
    for i in range(LOOKED_AT_ONCE):
        at = np.uint64(start) + np.uint64(i)
        bits = popcount(prints[at] ^ own)
        near = (bits <= within) & (least_rank(bits, minima[at], own_minima) <= bound)
        mask |= np.uint64(near) << np.uint64(i)
    return mask


@inlined
def lowest_place(mask: np.uint64) -> np.int64:
    """The place of the lowest bit that is set in a mask."""
    return popcount(~mask & (mask - _ONE))

"""An incremental, order-independent digest of a set of records: the sum of their hashes."""

from __future__ import annotations

from typing import Final

import numpy as np

from stream.tables.arrays import U64

LARGEST: Final = 2**64 - 1
_STEP: Final = np.uint64(0x9E37_79B9_7F4A_7C15)
_FIRST: Final = np.uint64(0xBF58_476D_1CE4_E5B9)
_SECOND: Final = np.uint64(0x94D0_49BB_1331_11EB)


def mixed(words: U64) -> U64:
    """A hash of each 64-bit value: SplitMix64's output function (Steele, Lea and Flood, OOPSLA 2014)."""
    mixed = words + _STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return mixed ^ (mixed >> np.uint64(31))


def digest(words: U64) -> int:
    """The digest of hashes: their sum modulo 2**64. Digests of parts add up to that of the whole."""
    return int(np.add.reduce(words, dtype=np.uint64))


def joined(*digests: int) -> int:
    """The digest of a union of disjoint parts."""
    return sum(digests) & LARGEST

"""An incremental, order-independent digest of a set of records: the sum of their hashes."""

from __future__ import annotations

from typing import Final

import numpy as np

from stream.tables.arrays import U64

LARGEST: Final = 2**64 - 1
_STEP: Final = np.uint64(0x9E37_79B9_7F4A_7C15)
_FIRST: Final = np.uint64(0xBF58_476D_1CE4_E5B9)
_SECOND: Final = np.uint64(0x94D0_49BB_1331_11EB)


def hash_words(words: U64) -> U64:
    """A hash of each 64-bit value, in the shape of `words`: SplitMix64's output function (Steele, Lea and
    Flood, OOPSLA 2014)."""
    hashes = words + _STEP
    hashes = (hashes ^ (hashes >> np.uint64(30))) * _FIRST
    hashes = (hashes ^ (hashes >> np.uint64(27))) * _SECOND
    return hashes ^ (hashes >> np.uint64(31))


def digest(hashes: U64) -> int:
    """The digest of a set by the hashes of its records (n,): their sum modulo 2**64. Digests of parts add up
    to that of the whole."""
    return int(np.add.reduce(hashes, dtype=np.uint64))


def union(*digests: int) -> int:
    """The digest of a union of disjoint sets, by their digests."""
    return sum(digests) & LARGEST


def difference(whole: int, part: int) -> int:
    """The digest of what is left of a set without a part of it."""
    return whole - part & LARGEST

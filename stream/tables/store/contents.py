"""An incremental, order-independent digest of a set of records: the sum of their hashes."""

from __future__ import annotations

from typing import Final

import numpy as np

from stream.fingerprint.keyed_hashes import GOLDEN, mix64
from stream.tables.arrays import U64

LARGEST: Final = 2**64 - 1


def hash_words(words: U64) -> U64:
    """A hash of each 64-bit value, in the shape of `words`."""
    hashes: U64 = mix64(words + np.uint64(GOLDEN))
    return hashes


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

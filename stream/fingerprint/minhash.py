"""MinHash: estimates of the Jaccard similarity J from samples of two sets (Broder, 1997; seed 000).

The least member of a set under a random order is the same for two sets with probability J. `k_functions`
takes the least under k orders; `k_smallest` takes the k least under one, which costs k times less. The judge
verifies by a third way, smaller still: see `stream.fingerprint.sketch`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.hashes import mix

_GOLDEN: Final = np.uint32(0x9E3779B9)
_ROUNDS: Final = 64
"""Hash functions evaluated at once, which bounds the memory."""

Member = TypeVar("Member", bound=Hashable)


def first_in(order: Sequence[Member], members: Set[Member]) -> Member:
    """The first of `members` in a given order: what MinHash is, for sets small enough to write an order down.
    Raises ValueError when none of them is in it."""
    for member in order:
        if member in members:
            return member
    raise ValueError("no member is in the order")


def k_functions(shingles: NDArray[np.uint32], k: int) -> NDArray[np.uint32]:
    """The least value of each of k hash functions over a set of shingles (n,), n > 0, repetitions allowed:
    (k,).

    Function i is a bijection of 32 bits (`mix` after the i-th step of a Weyl sequence), so shingles never
    collide in one.
    """
    least = np.empty(k, np.uint32)
    for start in range(0, k, _ROUNDS):
        steps = np.arange(start + 1, min(k, start + _ROUNDS) + 1, dtype=np.uint32) * _GOLDEN
        hashes = mix(mix(shingles[None, :] + steps[:, None]) ^ steps[:, None])
        least[start : start + _ROUNDS] = hashes.min(axis=1)
    return least


def k_smallest(shingles: NDArray[np.uint32], k: int) -> NDArray[np.uint32]:
    """The k least values of one hash function over a set of shingles (n,), ascending; fewer where the set has
    fewer."""
    return np.unique(mix(shingles.copy()))[:k]


def similarity_by_functions(a: NDArray[np.uint32], b: NDArray[np.uint32]) -> float:
    """Estimate of J from the minima of two sets under the same functions: the share of functions that agree.

    Not the overlap of the two lists of minima as sets, which seed 000 has: that estimates J / (2 - J).
    """
    return float((a == b).mean())


def similarity_by_smallest(a: NDArray[np.uint32], b: NDArray[np.uint32], k: int) -> float:
    """Estimate of J from the k smallest of two sets: of the k smallest of both together, a fair sample of the
    union, the share that is in either list. Two empty sets are equal."""
    union = np.union1d(a, b)[:k]
    if not union.size:
        return 1.0
    both = np.isin(union, a, assume_unique=True) & np.isin(union, b, assume_unique=True)
    return float(both.mean())

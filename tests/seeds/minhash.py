"""MinHash: estimates of the Jaccard similarity J from samples of two sets (Broder, 1997; seed 000).

The least member of a set under a random order is the same for two sets with probability J. `k_functions`
takes the least under k orders; `k_smallest` takes the k least under one order, at 1/k of the cost. The judge
uses neither, but the smaller sketches of `stream.fingerprint.sketch`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.keyed_hashes import mix

_GOLDEN: Final = np.uint32(0x9E3779B9)
_ROUNDS: Final = 64
"""Hash functions evaluated at a time, to bound memory."""

Member = TypeVar("Member", bound=Hashable)


def first_in(order: Sequence[Member], members: Set[Member]) -> Member:
    """The first of `members` in a given order: MinHash by its definition, for small sets. Raises ValueError
    if the order contains none of them."""
    for member in order:
        if member in members:
            return member
    raise ValueError("no member is in the order")


def k_functions(shingles: NDArray[np.uint32], k: int) -> NDArray[np.uint32]:
    """The least value of each of k hash functions over a set of shingles (n,), n > 0, repetitions allowed:
    (k,).

    Function i is a bijection of 32 bits (`mix` after the i-th step of a Weyl sequence), so it has no
    collisions.
    """
    least = np.empty(k, np.uint32)
    for start in range(0, k, _ROUNDS):
        steps = np.arange(start + 1, min(k, start + _ROUNDS) + 1, dtype=np.uint32) * _GOLDEN
        hashes = mix(mix(shingles[None, :] + steps[:, None]) ^ steps[:, None])
        least[start : start + _ROUNDS] = hashes.min(axis=1)
    return least


def k_smallest(shingles: NDArray[np.uint32], k: int) -> NDArray[np.uint32]:
    """The k least values of one hash function over a set of shingles (n,), ascending; fewer if the set is
    smaller."""
    return np.unique(mix(shingles.copy()))[:k]


def similarity_by_functions(a: NDArray[np.uint32], b: NDArray[np.uint32]) -> float:
    """Estimate J from the minima of two sets under the same functions: the fraction of functions that agree.

    Seed 000 compares the two lists of minima as sets instead, which estimates J / (2 - J).
    """
    return float((a == b).mean())


def similarity_by_smallest(a: NDArray[np.uint32], b: NDArray[np.uint32], k: int) -> float:
    """Estimate J from the k smallest values of two sets. The k smallest of both lists together are an
    unbiased sample of the union; the estimate is the fraction of them that is in both lists. Two empty sets
    are equal."""
    union = np.union1d(a, b)[:k]
    if not union.size:
        return 1.0
    both = np.isin(union, a, assume_unique=True) & np.isin(union, b, assume_unique=True)
    return float(both.mean())

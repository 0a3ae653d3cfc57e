"""The b-bit MinHash sketch (`sketch=minhash`).

Fast Similarity Sketching (Dahlgaard, Knudsen and Thorup, FOCS 2017): with t bins, round i < t throws every
shingle into one bin, by a hash of (i, shingle), and each bin keeps its least (round, hash). Round t + j
throws every shingle into bin j. Thus every bin holds an unbiased sample of the set, even for a short text, at
the cost of about t ln t throws, and no bin is copied from another. The sketch keeps the lowest b bits of each
bin's hash (Li and Koenig, WWW 2010).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

_EMPTY: Final = np.uint32(2**32 - 1)
_GOLDEN: Final = np.uint32(0x9E3779B9)
_FACTOR: Final = np.uint32(0x7FEB352D)
_THROWS: Final = (8, 3)
"""Throws per bin before the bins are checked, for the first time and after that. 8 per bin fill all of 1024
bins in 71 % of texts (coupon collector's problem: t ln t throws, here 7 per bin, are the median)."""
_BLOCK: Final = 16_384
"""Most throws made at once. Arrays of 64 KiB stay in the second-level cache."""


def minhash_sketch(shingle_hashes: NDArray[np.uint32], bins: int, bits: int) -> bytes:
    """Return the sketch of a set of shingles (n,), n > 0, repetitions allowed.

    It consists of `bits` planes: plane p holds bit p of every bin, bin j at bit j % 8 of byte j // 8.
    """
    low = _least(shingle_hashes, bins).astype(np.uint8)
    planes = (low & np.uint8(1 << plane) for plane in range(bits))
    return b"".join(np.packbits(plane, bitorder="little").tobytes() for plane in planes)


def _least(shingle_hashes: NDArray[np.uint32], bins: int) -> NDArray[np.uint32]:
    """Return the least (round, hash) of each bin: (bins,). The round takes as many high bits as the index of
    a bin, the hash the rest."""
    least = np.full(bins, _EMPTY)
    n = shingle_hashes.size
    first = 0
    while first < bins:
        last = min(bins, first + -(-_THROWS[first > 0] * bins // n))
        step = max(1, _BLOCK // n)
        for begin in range(first, last, step):
            rounds = np.arange(begin, min(last, begin + step), dtype=np.uint32)
            for start in range(0, n, _BLOCK):
                _throw(shingle_hashes[start : start + _BLOCK], rounds, least)
        if int(least.max()) != int(_EMPTY):
            return least
        first = last
    return _fill(shingle_hashes, least)


def _throw(part: NDArray[np.uint32], rounds: NDArray[np.uint32], least: NDArray[np.uint32]) -> None:
    mixed = _rehash(part, rounds)
    # The high bits select the bin (multiply and shift); the others are compared, and kept in the sketch.
    bins = least.size
    low = np.uint32(32 - (bins - 1).bit_length())
    even = bins & (bins - 1) == 0  # for a power of two, a shift alone does the same
    places = mixed >> low if even else (mixed * np.uint64(bins)) >> np.uint64(32)
    mixed &= (np.uint32(1) << low) - np.uint32(1)
    mixed |= rounds[:, None] << low
    np.minimum.at(least, places.ravel().astype(np.intp), mixed.ravel())


def _fill(shingle_hashes: NDArray[np.uint32], least: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Run the last t rounds for bins that are still empty, which happens only with very few shingles."""
    empty = np.flatnonzero(least == _EMPTY)
    rounds = empty.astype(np.uint32) + np.uint32(least.size)
    least[empty] = _rehash(shingle_hashes, rounds).min(axis=1)
    return least


def _rehash(part: NDArray[np.uint32], rounds: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return hashes of the shingles for each round, (rounds, n): a Weyl step, then half of `mix`. Shingles
    are mixed already; measured, the estimate is no worse than with all of `mix`."""
    mixed = part + ((rounds + np.uint32(1)) * _GOLDEN)[:, None]
    shifted = mixed >> np.uint32(16)
    mixed ^= shifted
    mixed *= _FACTOR
    np.right_shift(mixed, np.uint32(15), out=shifted)
    mixed ^= shifted
    return mixed

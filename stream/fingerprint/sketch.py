"""Shingles -> b-bit MinHash sketch, and sketches -> matching bins.

Fast Similarity Sketching (Dahlgaard, Knudsen and Thorup, FOCS 2017): with t bins, round i < t throws every
shingle into one bin, by a hash of (i, shingle), and a bin keeps its least (round, hash); round t + j throws
every shingle into bin j. So every bin is filled by an honest sample of the set, however short the text, at
the cost of about t ln t throws; no bin is copied from another. Of each bin's least hash the lowest b bits are
kept (Li and Koenig, WWW 2010).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.hashes import mix
from stream.fingerprint.scheme import Scheme

_EMPTY: Final = np.uint64(2**64 - 1)
_LOW: Final = np.uint64(2**32 - 1)
_HALF: Final = np.uint64(32)
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_FACTOR: Final = np.uint64(0xBF58476D1CE4E5B9)
_THROWS: Final = (8, 3)
"""Throws a bin that are made at once, at first and then: 8 throws a bin fill all of 1024 in 71 % of texts
(coupon collecting: t ln t, here 7 a bin, is the middle)."""
_BLOCK: Final = 16_384
"""Most throws made at once: 128 KiB an array stays in the second-level cache."""


def shingles(units: NDArray[np.uint64], length: int) -> NDArray[np.uint64]:
    """A hash of each run of `length` units, (n - length + 1,), from the units' hashes (n,).

    Fewer units than `length` make one shingle of all; no unit makes none.
    """
    if not units.size:
        return np.empty(0, np.uint64)
    length = min(length, units.size)
    count = units.size - length + 1
    combined = units[:count].copy()
    for place in range(1, length):
        combined *= _GOLDEN  # a polynomial with an odd base: order matters
        combined += units[place : place + count]
    return mix(combined)


def sketch(shingle_hashes: NDArray[np.uint64], scheme: Scheme) -> bytes:
    """The sketch of a set of shingles (n,), repetitions allowed; `scheme.sketch_bytes` long.

    Planar: plane p has bit p of every bin, bin j at bit j % 8 of byte j // 8. No shingles: all zeros.
    """
    if not shingle_hashes.size:
        return bytes(scheme.sketch_bytes)
    least = _least(shingle_hashes, scheme.sketch_bins)
    planes = (least[None, :] >> np.arange(scheme.sketch_bits, dtype=np.uint64)[:, None]) & np.uint64(1)
    return np.packbits(planes.astype(np.uint8), axis=1, bitorder="little").tobytes()


def matches(a: NDArray[np.uint64], b: NDArray[np.uint64], bits: int) -> NDArray[np.int64]:
    """How many bins of `a` and `b`, both (m, words), agree in all their `bits` bits: (m,).

    One of the two may be a single sketch (1, words) or (words,), compared with all of the other.
    """
    different = a ^ b
    words = different.shape[-1] // bits
    planes = different.reshape(*different.shape[:-1], bits, words)
    mismatches = np.bitwise_count(np.bitwise_or.reduce(planes, axis=-2)).sum(axis=-1, dtype=np.int64)
    return np.asarray(64 * words - mismatches, np.int64)


def _least(shingle_hashes: NDArray[np.uint64], bins: int) -> NDArray[np.uint64]:
    """Each bin's least (round << 32 | 32 bits of the hash), (bins,)."""
    least = np.full(bins, _EMPTY)
    n = shingle_hashes.size
    first = 0
    while first < bins:
        last = min(bins, first + -(-_THROWS[first > 0] * bins // n))
        step = max(1, _BLOCK // n)
        for begin in range(first, last, step):
            rounds = np.arange(begin, min(last, begin + step), dtype=np.uint64)
            for start in range(0, n, _BLOCK):
                _throw(shingle_hashes[start : start + _BLOCK], rounds, least)
        if int(least.max()) != int(_EMPTY):
            return least
        first = last
    return _fill(shingle_hashes, least)


def _throw(part: NDArray[np.uint64], rounds: NDArray[np.uint64], least: NDArray[np.uint64]) -> None:
    mixed = _rehash(part, rounds)
    # The high half picks the bin (multiply and shift), the low half is the order and the bits kept.
    bins = least.size
    if bins & (bins - 1):
        places = ((mixed >> _HALF) * np.uint64(bins)) >> _HALF
    else:  # the same in one step
        places = mixed >> np.uint64(65 - bins.bit_length())
    mixed &= _LOW
    mixed |= rounds[:, None] << _HALF
    np.minimum.at(least, places.ravel().view(np.int64), mixed.ravel())


def _fill(shingle_hashes: NDArray[np.uint64], least: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The last t rounds, for bins that t rounds left empty: only with a handful of shingles."""
    empty = np.flatnonzero(least == _EMPTY)
    rounds = empty.astype(np.uint64) + np.uint64(least.size)
    least[empty] = (_rehash(shingle_hashes, rounds) & _LOW).min(axis=1) | (rounds << _HALF)
    return least


def _rehash(part: NDArray[np.uint64], rounds: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hashes of the same shingles for each round, (rounds, n): a Weyl step, then half of SplitMix64's
    finaliser, since shingles come mixed (measured: the estimate errs no more than with all of it)."""
    mixed = part[None, :] + ((rounds + np.uint64(1)) * _GOLDEN)[:, None]
    shifted = mixed >> _HALF
    mixed ^= shifted
    mixed *= _FACTOR
    np.right_shift(mixed, np.uint64(29), out=shifted)
    mixed ^= shifted
    return mixed

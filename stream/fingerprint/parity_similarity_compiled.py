"""Pairs of sketches -> estimated Jaccard similarity, compiled: a judge estimates a few for every page."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled, popcount
from stream.fingerprint.parity import ONE, SCALE, differing, limits
from stream.fingerprint.scheme import Scheme

_SCALE: Final = np.int64(SCALE)
_LOWER: Final = np.uint64(0x5555555555555555)
"""Mask of the even bins, which hold the lower half of the sampled range."""
_JOIN: Final = np.uint64(1)


class Estimator(NamedTuple):
    """How similarities are estimated from a scheme's sketches."""

    bits: int
    """Of a bin of minima (`stream.fingerprint.bbit`); 0 for odd sketches."""
    of_all: NDArray[np.int64]
    """Elements that differ, in 1024ths, by how many bins of an odd sketch do (bins + 1,)."""
    of_even: NDArray[np.int64]
    """The same where two sets were sampled at different rates (bins / 2 + 1,)."""
    largest: NDArray[np.int64]
    """The largest sets that are sampled whole, by half, by a quarter ... (32,)."""


def estimator(scheme: Scheme) -> Estimator:
    """That of a scheme."""
    bits, bins = scheme.sketch_bits if scheme.sketch == "minhash" else 0, scheme.sketch_bins
    return Estimator(bits, differing(bins), differing(bins // 2), limits(bins))


@compiled
def similarities_of(
    a: NDArray[np.uint64],
    rows_a: NDArray[np.int64],
    b: NDArray[np.uint64],
    rows_b: NDArray[np.int64],
    by: Estimator,
) -> NDArray[np.int64]:
    """Estimated Jaccard similarity, in ten-thousandths, of the sets sketched in the m pairs `a[rows_a]` and
    `b[rows_b]`: (m,). Sketches are uint64 arrays (n, bins / 64 + 2) that include size and minima."""
    found = np.zeros(len(rows_a), np.int64)
    for i in range(len(rows_a)):
        found[i] = similarity_of(a, rows_a[i], b, rows_b[i], by)
    return found


@compiled
def similarity_of(
    a: NDArray[np.uint64],
    row_a: int | np.signedinteger[Any],
    b: NDArray[np.uint64],
    row_b: int | np.signedinteger[Any],
    by: Estimator,
) -> int:
    """The same of one pair."""
    if by.bits:
        return _of_minima(a[row_a], b[row_b], by.bits)
    one, two, last = a[row_a], b[row_b], a.shape[1] - 2
    size_one, size_two, sampled = np.int64(one[last]), np.int64(two[last]), by.largest
    if not size_one + size_two:
        return ONE
    halved_one = halved_two = np.int64(0)  # as of most pages
    if size_one > sampled[0]:
        halved_one = np.int64(np.searchsorted(sampled, size_one))
    if size_two > sampled[0]:
        halved_two = np.int64(np.searchsorted(sampled, size_two))
    unequal = np.int64(0)
    if halved_one == halved_two:
        for word in range(last):
            unequal += popcount(one[word] ^ two[word])
        apart = by.of_all[unequal] << halved_one
    elif np.abs(halved_one - halved_two) == 1:
        coarser = one if halved_one > halved_two else two
        for word in range(last):
            unequal += popcount((one[word] ^ two[word] ^ coarser[word] >> _JOIN) & _LOWER)
        apart = by.of_even[unequal] << np.maximum(halved_one, halved_two)
    else:  # less than half as large
        return 0
    # Sizes are known exactly, and sets differ by at least as much as these do.
    both = (size_one + size_two) * _SCALE
    apart = np.maximum(apart, np.abs(size_one - size_two) * _SCALE)
    return int(ONE * np.maximum(both - apart, 0) // (both + apart))


@compiled
def _of_minima(one: NDArray[np.uint64], two: NDArray[np.uint64], bits: int) -> int:
    """The same of b-bit minima, whose planes of a bit a bin follow each other. A bin matches by chance with
    probability 2**-b, so E[matches / bins] = J + (1 - J) / 2**b."""
    words = (len(one) - 1) // bits
    mismatches = np.int64(0)
    for word in range(words):
        different = np.uint64(0)
        for plane in range(bits):
            different |= one[plane * words + word] ^ two[plane * words + word]
        mismatches += popcount(different)
    beyond_chance = ((64 * words - mismatches) << bits) - 64 * words
    return int(np.maximum(0, ONE * beyond_chance // (64 * words * ((1 << bits) - 1))))

"""The similarity estimated from pairs of odd sketches, in a compiled loop: the judge needs some per page."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled, popcount
from stream.fingerprint.parity import ONE, SCALE, differing, limits

_SCALE: Final = np.int64(SCALE)
_LOWER: Final = np.uint64(0x5555555555555555)
"""Mask of the even bins, which hold the lower half of the sampled range."""
_JOIN: Final = np.uint64(1)


def parity_similarity(
    a: NDArray[np.uint64], rows_a: NDArray[np.int64], b: NDArray[np.uint64], rows_b: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Estimated Jaccard similarity, in ten-thousandths, of the sets sketched in the m pairs `a[rows_a]` and
    `b[rows_b]`: (m,). Sketches are uint64 arrays (n, bins / 64 + 2) that include size and minima."""
    bins = 64 * (a.shape[1] - 2)
    return _similarity(a, rows_a, b, rows_b, differing(bins), differing(bins // 2), limits(bins))


@compiled
def _similarity(
    a: NDArray[np.uint64],
    rows_a: NDArray[np.int64],
    b: NDArray[np.uint64],
    rows_b: NDArray[np.int64],
    of_all: NDArray[np.int64],
    of_even: NDArray[np.int64],
    limits: NDArray[np.int64],
) -> NDArray[np.int64]:
    similarities = np.zeros(len(rows_a), np.int64)
    last = a.shape[1] - 2
    for i in range(len(rows_a)):
        one, two = a[rows_a[i]], b[rows_b[i]]
        size_one, size_two = np.int64(one[last]), np.int64(two[last])
        if not size_one + size_two:
            similarities[i] = ONE
            continue
        halved_one = halved_two = np.int64(0)  # most pages are not sampled
        if size_one > limits[0]:
            halved_one = np.int64(np.searchsorted(limits, size_one))
        if size_two > limits[0]:
            halved_two = np.int64(np.searchsorted(limits, size_two))
        unequal = np.int64(0)
        if halved_one == halved_two:
            for word in range(last):
                unequal += popcount(one[word] ^ two[word])
            differing = of_all[unequal] << halved_one
        elif np.abs(halved_one - halved_two) == 1:
            coarser = one if halved_one > halved_two else two
            for word in range(last):
                unequal += popcount((one[word] ^ two[word] ^ coarser[word] >> _JOIN) & _LOWER)
            differing = of_even[unequal] << np.maximum(halved_one, halved_two)
        else:  # one set is less than half as large: not similar
            continue
        # Sizes are known exactly, and the symmetric difference is at least their difference.
        both = (size_one + size_two) * _SCALE
        differing = np.maximum(differing, np.abs(size_one - size_two) * _SCALE)
        similarities[i] = ONE * np.maximum(both - differing, 0) // (both + differing)
    return similarities

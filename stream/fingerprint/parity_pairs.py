"""Pairs of odd sketches -> estimated Jaccard similarity, compiled: a judge estimates a few for every page."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled, popcount
from stream.fingerprint.parity import ONE, SAMPLE, SCALE, differing

_SCALE: Final = np.int64(SCALE)


def parity_similarity(
    a: NDArray[np.uint64], rows_a: NDArray[np.int64], b: NDArray[np.uint64], rows_b: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Estimated Jaccard similarity, in ten-thousandths, of the sets behind the m pairs `a[rows_a]` and
    `b[rows_b]`, sketches being (n, words): (m,)."""
    bins = 64 * (a.shape[1] - 1)
    return _similarity(a, rows_a, b, rows_b, differing(bins), SAMPLE * bins)


@compiled
def _similarity(
    a: NDArray[np.uint64],
    rows_a: NDArray[np.int64],
    b: NDArray[np.uint64],
    rows_b: NDArray[np.int64],
    differing: NDArray[np.int64],
    sample: int,
) -> NDArray[np.int64]:
    similarities = np.empty(len(rows_a), np.int64)
    last = a.shape[1] - 1
    for i in range(len(rows_a)):
        row_a, row_b = rows_a[i], rows_b[i]
        unequal = np.int64(0)
        for word in range(last):
            unequal += popcount(a[row_a, word] ^ b[row_b, word])
        size_a, size_b = np.int64(a[row_a, last]), np.int64(b[row_b, last])
        smallest, largest = np.minimum(size_a, size_b), np.maximum(size_a, size_b)
        both = size_a + size_b
        if not both:
            similarities[i] = ONE
            continue
        # Of the sampled elements, those in both sets, twice: all but the differing ones. The larger set
        # sampled the same share of its elements as of those that both have. Both have no more than the
        # smaller set.
        shared = (np.minimum(size_a, sample) + np.minimum(size_b, sample)) * _SCALE - differing[unequal]
        shared = shared * largest // np.maximum(np.minimum(largest, sample), 1)
        shared = np.minimum(np.maximum(shared, 0), 2 * _SCALE * smallest)
        similarities[i] = ONE * shared // np.maximum(2 * _SCALE * both - shared, 1)
    return similarities

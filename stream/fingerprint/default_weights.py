"""The default features and weights: distinct token hashes, weighted by the square root of their counts."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

UNIT: Final = 4096
"""Weight of a token that occurs once. A power of two, so that scaling a square root is exact."""
MOST_COUNTED: Final = 4
"""Occurrences of a token beyond these count nothing. One word repeated 200 times would move more bits of a
short page's fingerprint than the distance allows, and so hide a copy with all of its shingles."""


def features(hashes: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the distinct values of token `hashes` (n,), ascending (d,), and their weights (d,)."""
    if not hashes.size:
        return np.empty(0, np.uint64), np.empty(0, np.int64)
    ordered = np.sort(hashes)
    first = np.empty(hashes.size, np.bool_)
    first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    counts = np.empty_like(starts)
    np.subtract(starts[1:], starts[:-1], out=counts[:-1])
    counts[-1] = hashes.size - starts[-1]
    return ordered[starts], weigh(counts)


def weigh(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """rint(UNIT * sqrt(min(tf, MOST_COUNTED))) for each term frequency, so that the commonest words do not
    dominate long pages.

    IEEE 754 specifies square root and rounding exactly, so all machines agree.
    """
    weights: NDArray[np.int64] = np.rint(
        UNIT * np.sqrt(np.minimum(counts, MOST_COUNTED).astype(np.float64))
    ).astype(np.int64)
    return weights

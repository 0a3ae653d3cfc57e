"""Hamming distance of two fingerprints, compiled; `columns.distances` does the same for whole columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled, popcount


@compiled
def hamming_distance(
    a: NDArray[np.uint64],
    row_a: int | np.integer[Any],
    b: NDArray[np.uint64],
    row_b: int | np.integer[Any],
) -> np.int64:
    """Return the number of bits in which the fingerprints `a[row_a]` and `b[row_b]` differ; both are (n,
    lanes)."""
    bits = np.int64(0)
    for lane in range(a.shape[1]):
        bits += popcount(a[row_a, lane] ^ b[row_b, lane])
    return bits

"""How far two fingerprints are apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def hamming(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> NDArray[np.int64]:
    """In how many bits the fingerprints differ, (n,): both (n,) for up to 64 bits, or (n, words). One of the
    two may be a single fingerprint."""
    different = np.bitwise_count(a ^ b)
    bits: NDArray[np.int64] = different.astype(np.int64)
    return bits if bits.ndim < 2 else bits.sum(axis=-1)


def as_words(fingerprints: list[int], width: int) -> NDArray[np.uint64]:
    """Fingerprints as columns: (n,) for up to 64 bits, (n, 2) for 128, the more significant word first."""
    if width <= 64:
        return np.array(fingerprints, np.uint64)
    return np.array([(each >> 64, each & 2**64 - 1) for each in fingerprints], np.uint64).reshape(-1, 2)

"""Random fingerprints of any width, for tests and benchmarks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]


def random_set(rng: np.random.Generator, n: int, width: int) -> U64:
    """Return random fingerprints, uint64 (n,), or (n, 2) for 128 bits."""
    shape = (n, width // 64) if width > 64 else (n,)
    return rng.integers(0, 1 << min(width, 64), shape, dtype=np.uint64)


def flip_bits(rng: np.random.Generator, fingerprints: U64, width: int, counts: NDArray[np.int64]) -> U64:
    """Return the fingerprints (n,) or (n, 2), each with `counts` (n,) distinct random bits flipped."""
    words = (fingerprints if fingerprints.ndim == 2 else fingerprints[:, None]).copy()
    most = int(counts.max(initial=0))
    bits = np.argpartition(rng.random((len(words), width)), most, axis=1)[:, :most]
    for place in range(most):
        rows = np.flatnonzero(counts > place)
        bit = bits[rows, place]
        words[rows, words.shape[1] - 1 - bit // 64] ^= np.uint64(1) << (bit % 64).astype(np.uint64)
    return words.reshape(fingerprints.shape)


def as_integers(fingerprints: U64) -> list[int]:
    """Return fingerprints as Python integers."""
    rows = fingerprints.tolist() if fingerprints.ndim == 2 else [[n] for n in fingerprints.tolist()]
    return [sum(word << 64 * place for place, word in enumerate(reversed(row))) for row in rows]

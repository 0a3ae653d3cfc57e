"""Shingles and sketches of texts, and the similarity estimated from two sketches, by the scheme's `sketch`.

Every sketch ends with the set's minima (see `stream.fingerprint.minima`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.bbit import minhash_sketch
from stream.fingerprint.keyed_hashes import mix
from stream.fingerprint.minima import minima
from stream.fingerprint.parity import parity_sketch
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.small_sets import largest_counted

SHINGLE_BASE: Final = np.uint32(0x846CA68B)
"""Base of the polynomial over a shingle's units, which are keyed hashes: odd, and with well mixed powers."""


def shingles(units: NDArray[np.uint32], length: int) -> NDArray[np.uint32]:
    """Return a hash of each run of `length` units (n,), which are hashes of characters or words: (n - length
    + 1,).

    Fewer units than `length` make a single shingle; no units make none. Among s distinct shingles about
    s**2 / 2**33 pairs collide: one pair in a text of 90 000, far below the precision of an estimate.
    """
    if not units.size:
        return np.empty(0, np.uint32)
    length = min(length, units.size)
    count = units.size - length + 1
    combined = units[:count].copy()
    for place in range(1, length):
        combined *= SHINGLE_BASE
        combined += units[place : place + count]
    return mix(combined)


def sketch(shingle_hashes: NDArray[np.uint32], scheme: Scheme) -> bytes:
    """Return the sketch of a set of shingles (n,), repetitions allowed, in `scheme.sketch_bytes` bytes.
    Without shingles it is all zeros."""
    if not shingle_hashes.size:
        return bytes(scheme.sketch_bytes)
    ordered = _distinct(shingle_hashes)
    if scheme.sketch == "minhash":
        content = minhash_sketch(ordered, scheme.sketch_bins, scheme.sketch_bits)
    else:
        content = parity_sketch(ordered, scheme.sketch_bins)
    return content + minima(ordered).astype("<u8", copy=False).tobytes()


def _distinct(shingle_hashes: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the distinct hashes, ascending."""
    ordered = np.sort(shingle_hashes)
    fresh = np.empty(ordered.size, np.bool_)
    fresh[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    return ordered[fresh]


class SketchPairs(NamedTuple):
    """m pairs of sketches, each pair `a[rows_a[i]]` and `b[rows_b[i]]`."""

    a: NDArray[np.uint64]
    """(n, sketch_bytes / 8)"""
    rows_a: NDArray[np.int64]
    b: NDArray[np.uint64]
    rows_b: NDArray[np.int64]

    @classmethod
    def of(cls, a: NDArray[np.uint64], b: NDArray[np.uint64]) -> SketchPairs:
        """Pair the rows of `a` with those of `b`, or a single sketch with all of the other array."""
        a, b = a.reshape(-1, a.shape[-1]), b.reshape(-1, b.shape[-1])
        rows = np.arange(max(len(a), len(b)))
        return cls(a, rows % len(a), b, rows % len(b))


def similarities(pairs: SketchPairs, scheme: Scheme) -> NDArray[np.int64]:
    """Return the estimated Jaccard similarity of the texts of each pair, in ten-thousandths: (m,)."""
    # Imported here, since workers never compare sketches and need not wait for the compiler's import.
    from stream.fingerprint.parity_similarity_compiled import estimator, similarities_of

    return similarities_of(*pairs, estimator(scheme))


def both_listed(pairs: SketchPairs, scheme: Scheme) -> NDArray[np.bool_]:
    """Return for each pair whether both sets are so small that they are compared by their lists: (m,)."""
    from stream.fingerprint.parity_similarity_compiled import both_listed_of, estimator

    return both_listed_of(*pairs, estimator(scheme))


def counted(pairs: SketchPairs, scheme: Scheme) -> NDArray[np.bool_]:
    """Return for each pair whether both sets are listed by codes so long that their similarity is counted
    rather than estimated (see `stream.fingerprint.small_sets.largest_counted`): (m,)."""
    a, rows_a, b, rows_b = pairs
    if scheme.sketch != "parity":
        return np.zeros(len(rows_a), np.bool_)
    size, largest = scheme.sketch_bins // 64, largest_counted(scheme.sketch_bins)
    both: NDArray[np.bool_] = (a[rows_a, size] <= largest) & (b[rows_b, size] <= largest)
    return both

"""SimHash in its original form: the signs of projections on random hyperplanes (Charikar, STOC 2002; seeds
002, 003).

Each bit tells on which side of a hyperplane through the origin a vector lies. Two vectors at an angle t are
on different sides with probability t / pi, so the distance of their fingerprints estimates the angle.

With few dimensions the planes can be stored. With many, such as one for every word, hashes replace them:
bit i of the hash of dimension d, read as +1 or -1, is the d-th coordinate of plane i. The weighted sum of
these is `simhash.simhash`, and `planes_of` gives the planes of such hashes.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def normal_planes(width: int, dimensions: int, seed: int) -> NDArray[np.float64]:
    """Normals of `width` hyperplanes, (width, dimensions), with uniformly distributed directions. Plane i
    belongs to the bit of value 2**i."""
    return np.random.default_rng(seed).standard_normal((width, dimensions))


def planes_of(hashes: NDArray[np.uint64], width: int) -> NDArray[np.int64]:
    """The normals, (width, d) of 1 and -1, of the planes given by the hashes of d dimensions, (d,) or
    (d, 2)."""
    words = hashes[:, ::-1] if hashes.ndim == 2 else hashes[:, None]
    little = np.ascontiguousarray(words, "<u8").view(np.uint8).reshape(len(words), -1)
    bits = np.unpackbits(little, axis=1, bitorder="little")[:, :width]
    return 2 * bits.T.astype(np.int64) - 1


def signs(
    vectors: NDArray[np.float64] | NDArray[np.int64],
    planes: NDArray[np.float64] | NDArray[np.int64],
    tie_word: int = 0,
) -> list[int]:
    """The fingerprint of each vector (n, dimensions). Bit i is 1 on the positive side of plane i, 0 on the
    negative side, and bit i of `tie_word` on the plane itself."""
    found = []
    for sums in vectors @ planes.T:
        ones, on = (int.from_bytes(np.packbits(side, bitorder="little").tobytes(), "little")
                    for side in (sums > 0, sums == 0))  # fmt: skip
        found.append(ones | on & tie_word)
    return found


def angle(distance: int, width: int) -> float:
    """The angle in radians, 0 to pi, estimated from a Hamming distance. Its standard error is at most
    pi / (2 * sqrt(width))."""
    return math.pi * distance / width


def cosine(distance: int, width: int) -> float:
    """The cosine similarity estimated from a Hamming distance."""
    return math.cos(angle(distance, width))


def expected_distance(cosine_similarity: float, width: int) -> float:
    """The expected Hamming distance of the fingerprints of two vectors with that cosine."""
    return width * math.acos(max(-1.0, min(1.0, cosine_similarity))) / math.pi

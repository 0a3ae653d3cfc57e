"""Units -> shingles -> sketch, and pairs of sketches -> similarity, by the kind that the scheme names."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.bbit import minhash_similarity, minhash_sketch
from stream.fingerprint.hashes import mix
from stream.fingerprint.parity import parity_similarity, parity_sketch
from stream.fingerprint.scheme import Scheme

_BASE: Final = np.uint32(0x846CA68B)
"""Of the shingles' polynomial: none of its first four powers takes the difference of two characters below
2**16 to such a difference, so shingles of Han characters that differ in one or two never fall together."""


def shingles(units: NDArray[np.uint32], length: int) -> NDArray[np.uint32]:
    """A hash of each run of `length` units (n,), characters or hashes of words: (n - length + 1,).

    Fewer units than `length` make one shingle of all; no unit makes none. Of s different shingles about
    s**2 / 2**33 pairs share a hash: one pair in a text of 90 000, which no estimate can see.
    """
    if not units.size:
        return np.empty(0, np.uint32)
    length = min(length, units.size)
    count = units.size - length + 1
    combined = units[:count].copy()
    for place in range(1, length):
        combined *= _BASE  # a polynomial: order matters
        combined += units[place : place + count]
    return mix(combined)


def shingles_of_each(
    units: NDArray[np.uint32], bounds: NDArray[np.intp], length: int
) -> list[NDArray[np.uint32]]:
    """`shingles` of many texts: text i has the `units[bounds[i] : bounds[i + 1]]`."""
    running = shingles(units, length) if units.size >= length else np.empty(0, np.uint32)
    ends = bounds.tolist()
    return [
        running[start : end - length + 1] if end - start >= length else shingles(units[start:end], length)
        for start, end in pairwise(ends)
    ]


def sketch(shingle_hashes: NDArray[np.uint32], scheme: Scheme) -> bytes:
    """The sketch of a set of shingles (n,), repetitions allowed; `scheme.sketch_bytes` long.

    No shingles: all zeros.
    """
    if not shingle_hashes.size:
        return bytes(scheme.sketch_bytes)
    if scheme.sketch == "minhash":
        return minhash_sketch(shingle_hashes, scheme.sketch_bins, scheme.sketch_bits)
    return parity_sketch(shingle_hashes, scheme.sketch_bins)


def similarities(a: NDArray[np.uint64], b: NDArray[np.uint64], scheme: Scheme) -> NDArray[np.int64]:
    """Estimated Jaccard similarity, in whole ten-thousandths, of the texts behind `a` and `b`, both
    (m, words): (m,).

    One of the two may be a single sketch (1, words) or (words,), compared with all of the other.
    """
    if scheme.sketch == "minhash":
        return minhash_similarity(a, b, scheme.sketch_bits)
    return parity_similarity(a, b)

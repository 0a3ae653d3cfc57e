"""The default sketch: an odd sketch of a sample of the shingles, with the size of the set.

Odd sketches (Mitzenmacher, Pagh and Pham, "Efficient Estimation for High Similarities using Odd Sketches",
WWW 2014) keep of each bin only whether an odd number of elements fell into it. The XOR of two of them is
the odd sketch of the sets' symmetric difference, so what two near-duplicates share adds no noise at all.
Of a set of n > k shingles those are sampled whose hash lies in the lowest k / n of all hashes: two sets of
like size sample the same elements. A set of at most k shingles is there whole.
"""

from __future__ import annotations

import functools
from decimal import Decimal, localcontext
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.hashes import mix

SAMPLE: Final = 2
"""k, in bins: more shingles lessen the noise of sampling, fewer that of bins filled twice. Of 1, 2 and 3, two
erred least on long and on short texts."""
SIZE_BYTES: Final = 8
"""After the bins: how many shingles the set has, u64 little-endian."""
ONE: Final = 10_000
"""Similarities are whole ten-thousandths (rule 15)."""
SCALE: Final = 1024
"""Sizes of differences are whole 1024ths."""


def parity_sketch(shingle_hashes: NDArray[np.uint32], bins: int) -> bytes:
    """The sketch of a set of well mixed shingle hashes (n,), repetitions allowed: bin j is bit j % 8 of byte
    j // 8, then the size of the set."""
    ordered = np.sort(shingle_hashes)
    fresh = np.empty(ordered.size, np.bool_)
    fresh[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    ordered = ordered[fresh]
    size, k = ordered.size, SAMPLE * bins
    if size > k:
        ordered = ordered[: ordered.searchsorted(np.uint32((k << 32) // size))]
    places = mix(ordered) * np.uint64(bins) >> np.uint64(32)
    odd = np.bincount(places.astype(np.intp), minlength=bins).astype(np.uint8) & np.uint8(1)
    return np.packbits(odd, bitorder="little").tobytes() + size.to_bytes(SIZE_BYTES, "little")


@functools.cache
def differing(bins: int) -> NDArray[np.int64]:
    """How many elements, in 1024ths, make that many of the bins odd (bins + 1,): from half the bins on, more
    than a sketch can tell.

    d elements make bins * (1 - (1 - 2 / bins)**d) / 2 of them odd. By decimal logarithms, so that all
    machines have the same table.
    """
    table = np.full(bins + 1, 4 * SAMPLE * bins * SCALE)
    with localcontext() as context:
        context.prec = 30
        one_more = (1 - Decimal(2) / bins).ln()
        for odd in range((bins + 1) // 2):
            table[odd] = int((1 - Decimal(2 * odd) / bins).ln() / one_more * SCALE)
    return table

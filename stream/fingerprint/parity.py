"""The default sketch: an odd sketch of a sample of the shingles, with the size of the set.

Odd sketches (Mitzenmacher, Pagh and Pham, "Efficient Estimation for High Similarities using Odd Sketches",
WWW 2014) keep of each bin only whether an odd number of elements fell into it. The XOR of two of them is
the odd sketch of the sets' symmetric difference, so what two near-duplicates share adds no noise at all.

Of a set too large for the bins, those shingles are sampled whose hash lies in the lowest half, quarter,
eighth ... of the range, so that at most MOST a bin are. Sets of like size mostly sample at the same rate,
hence the same elements. Where one sampled half as many, the other is taken back to that: elements of the
upper half of the sampled range have bins of their own, the odd ones, so those are left out, and each two bins
of the coarser one are joined.
"""

from __future__ import annotations

import functools
from decimal import Decimal, localcontext
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.hashes import mix

MOST: Final = (5, 2)
"""Most sampled shingles a bin, a fraction: 1.25 to 2.5 a bin then. More lessen the noise of sampling, fewer
that of bins filled twice."""
SIZE_BYTES: Final = 8
"""After the bins: how many shingles the set has, u64 little-endian."""
ONE: Final = 10_000
"""Similarities are whole ten-thousandths (rule 15)."""
SCALE: Final = 1024
"""Sizes of differences are whole 1024ths."""


def parity_sketch(ordered: NDArray[np.uint32], bins: int) -> bytes:
    """The sketch of a set of well mixed shingle hashes (n,), ascending: bin j is bit j % 8 of byte j // 8,
    then the size of the set."""
    size = ordered.size
    halved = int(limits(bins).searchsorted(size))
    if halved:
        ordered = ordered[: ordered.searchsorted(np.uint32(1 << 32 - halved))]
    upper = int(ordered.searchsorted(np.uint32(1 << 31 - halved)))
    places = mix(ordered.copy()) * np.uint64(bins // 2) >> np.uint64(32)
    places <<= np.uint64(1)
    places[upper:] += np.uint64(1)
    odd = np.bincount(places.astype(np.intp), minlength=bins).astype(np.uint8) & np.uint8(1)
    return np.packbits(odd, bitorder="little").tobytes() + size.to_bytes(SIZE_BYTES, "little")


@functools.cache
def limits(bins: int) -> NDArray[np.int64]:
    """The largest sets that are sampled whole, by half, by a quarter ... (32,)."""
    return np.array([(bins * MOST[0] // MOST[1]) << halved for halved in range(32)], np.int64)


@functools.cache
def differing(bins: int) -> NDArray[np.int64]:
    """How many elements, in 1024ths, make that many of the bins odd (bins + 1,): from half the bins on, more
    than a sketch can tell.

    d elements make bins * (1 - (1 - 2 / bins)**d) / 2 of them odd. By decimal logarithms, so that all
    machines have the same table.
    """
    table = np.full(bins + 1, 32 * bins * SCALE)
    with localcontext() as context:
        context.prec = 30
        one_more = (1 - Decimal(2) / bins).ln()
        for odd in range((bins + 1) // 2):
            table[odd] = int((1 - Decimal(2 * odd) / bins).ln() / one_more * SCALE)
    return table

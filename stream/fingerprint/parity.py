"""The default sketch (`sketch=parity`): an odd sketch of a sample of the shingles, and the size of the set.

Odd sketches (Mitzenmacher, Pagh and Pham, "Efficient Estimation for High Similarities using Odd Sketches",
WWW 2014) store one bit per bin: whether an odd number of elements fell into it. The XOR of two sketches is
the odd sketch of the sets' symmetric difference, so the elements that two near-duplicates share add no noise.

A set that is too large for the bins is sampled: only hashes in the lowest half, quarter, eighth ... of the
range are used, so that there are at most MOST per bin. Sets of similar size mostly sample at the same rate,
and so the same elements. If one set samples at half the rate of the other, the finer sketch is reduced to the
coarser: hashes in the upper half of the sampled range fall into odd bins, which are dropped from the finer
one, and each even bin of the coarser one is joined with the odd bin after it.

A small set is listed instead (`stream.fingerprint.small_sets`), and compared with another small one by their
lists: in bins, two elements that fall into one cancel out, which near the threshold is most of the noise of
sets that are not sampled.
"""

from __future__ import annotations

import functools
from decimal import Decimal, localcontext
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.keyed_hashes import mix
from stream.fingerprint.small_sets import encode_list, low_bits

MOST: Final = (5, 2)
"""Most sampled shingles per bin, as a fraction; a sampled set has 1.25 to 2.5 per bin. More would reduce the
noise of sampling, fewer that of collisions in a bin."""
SIZE_BYTES: Final = 8
"""Bytes after the bins that hold the size of the set, u64 little-endian."""
LARGEST_SET: Final = 2**32
"""Shingles are hashes of 32 bits. The estimate of similarity relies on no size being larger."""
ONE: Final = 10_000
"""Similarity 1; similarities are integers in ten-thousandths (rule 15)."""
SCALE: Final = 1024
"""Size 1; sizes of symmetric differences are integers in 1024ths."""


def parity_sketch(ordered: NDArray[np.uint32], bins: int) -> bytes:
    """Return the sketch of a set of well mixed shingle hashes (n,), ascending: the list of a small set, or
    the bins, bin j at bit j % 8 of byte j // 8; then the size of the set."""
    size = ordered.size
    halved = int(limits(bins).searchsorted(size))
    if halved:
        ordered = ordered[: ordered.searchsorted(np.uint32(1 << 32 - halved))]
    upper = int(ordered.searchsorted(np.uint32(1 << 31 - halved)))
    scaled = mix(ordered.copy()) * np.uint64(bins // 2)
    places = (scaled >> np.uint64(32)) << np.uint64(1)
    places[upper:] += np.uint64(1)
    if size < low_bits(bins).size:
        content = encode_list(places, scaled & np.uint64(2**32 - 1), bins)
    else:
        odd = np.bincount(places.astype(np.intp), minlength=bins).astype(np.uint8) & np.uint8(1)
        content = np.packbits(odd, bitorder="little").tobytes()
    return content + size.to_bytes(SIZE_BYTES, "little")


@functools.cache
def limits(bins: int) -> NDArray[np.int64]:
    """Return the sizes of the largest sets that are used whole, sampled by half, by a quarter ... (32,)."""
    return np.array([(bins * MOST[0] // MOST[1]) << halved for halved in range(32)], np.int64)


@functools.cache
def estimated_differences(bins: int) -> NDArray[np.int64]:
    """Return the estimated number of elements, in 1024ths, by the number of odd bins: (bins + 1,). From half
    of the bins on, the estimate is unbounded and the table holds a very large number.

    d elements make an expected bins * (1 - (1 - 2 / bins)**d) / 2 bins odd. The table is computed with
    decimal logarithms, so that it is the same on all machines.
    """
    table = np.full(bins + 1, 32 * bins * SCALE)
    with localcontext() as context:
        context.prec = 30
        one_more = (1 - Decimal(2) / bins).ln()
        for odd in range((bins + 1) // 2):
            table[odd] = int((1 - Decimal(2 * odd) / bins).ln() / one_more * SCALE)
    return table

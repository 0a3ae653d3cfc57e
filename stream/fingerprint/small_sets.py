"""Small sets of shingles, kept whole in the place of an odd sketch's bins (`sketch=parity`, rule 19).

The shingles of a short page are listed, each by a code that begins with its bin, so that the list gives the
bins too when the other set is larger. The codes are kept in order as Elias and Fano proposed: the high bits,
the *bucket*, in unary, and the low bits as they are. The fewer shingles, the more low bits each has.

Equal codes are all kept, so that only shingles of either set that the other has not can be taken for equal:
at J = 0.8, of 60 shingles 7 of one set and 7 of the other, among 15 million codes; of 336, which are most, 37
and 37, among 3,840. So up to `largest_counted` the similarity of two lists is as good as exact. Of larger
sets it is an estimate: near J = 0.8 never too low, and too high by the shingles that have equal codes, which
are 0.02 in a pair of 200 shingles each, 0.10 in one of 250, 0.36 in one of 336.
"""

from __future__ import annotations

import functools
from typing import Final

import numpy as np
from numpy.typing import NDArray

BINS_A_BUCKET: Final = 8
BIN_BITS: Final = 3
"""Low bits that say which bin of the bucket a code belongs to; those after them come from the hash."""
FEWEST: Final = 4
"""Low bits of the codes of the largest sets that are listed."""
MOST: Final = 16
"""Low bits of the codes of the smallest sets."""


WRONGLY_COUNTED: Final = 1_000
"""Of so many pairs of sets at J = 0.8, at most one is expected to be counted wrongly."""


@functools.cache
def low_bits(bins: int) -> NDArray[np.int64]:
    """Return the low bits of each code of a set that is listed in the place of so many bins, by its size:
    what is left beside a bit a bucket and one a code. (s + 1,), where s is the size of the largest such
    set."""
    free = bins - bins // BINS_A_BUCKET
    return np.array(
        [min(MOST, free // max(1, size) - 1) for size in range(free // (FEWEST + 1) + 1)], np.int64
    )


@functools.cache
def largest_counted(bins: int) -> int:
    """Return the size of the largest sets whose codes are so long that the similarity of two lists is counted
    rather than estimated. At J = 0.8 a ninth of each set is not in the other."""
    low = low_bits(bins)
    size = np.arange(low.size)
    codes = bins // BINS_A_BUCKET << low
    return int(np.flatnonzero(WRONGLY_COUNTED * size**2 <= 9 * 9 * codes)[-1])


def encode_list(places: NDArray[np.uint64], fractions: NDArray[np.uint64], bins: int) -> bytes:
    """Return the list of a set of shingles (n,), of which `places` are the bins. `fractions`, of 32 bits,
    tell the shingles of a bin apart.

    Bucket by bucket a 1 for each code, and a 0; then the low bits of each code. Bit j is bit j % 8 of byte
    j // 8.
    """
    size = places.size
    low = int(low_bits(bins)[size])
    more = low - BIN_BITS
    codes = np.sort(places << np.uint64(more) | fractions >> np.uint64(32 - more)).tolist()
    bits = 0
    for number, code in enumerate(codes):
        bits |= 1 << (code >> low) + number
        bits |= (code & (1 << low) - 1) << bins // BINS_A_BUCKET + size + number * low
    return bits.to_bytes(bins // 8, "little")

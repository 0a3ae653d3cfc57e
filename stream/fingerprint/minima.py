"""Thirty minima of a set of shingles, by which tables find candidates (LSH banding).

The minima are the least hash in each thirtieth of the range of hashes (one permutation hashing: Li, Owen and
Zhang, NIPS 2012). An empty one takes the next hash after it, wrapping around at the end. Each minimum is the
same for two sets with a probability equal to their Jaccard similarity J.

They form ten triangles, each of three minima that stand a third of the range apart. A triangle has three
pairs of minima, and there is a bucket for each pair (rule 16). Pages look into the nine buckets of the first
three triangles, which are a tenth of the range apart: neighbouring thirtieths of a short page often have the
same minimum. Two pages with J = 0.8 have one of these buckets in common in 9989 of 10000 cases.

The minima are packed into eight 64-bit words. The first nine take 19 bits each, a triangle to a word, so that
no bucket needs bits of two words; by these three words the tables know an anchor. The others take 16 bits
each, four to a word, and the last one is in what is left at the top of the first three words.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

MINIMA: Final = 30
"""Number of minima at the end of each sketch."""
FIRST_MINIMA: Final = 9
"""Number of minima in the first three triangles."""
TRIANGLE: Final = 3
"""Minima in a triangle, and pairs of them."""
MINIMUM_RANK: Final = 2
"""Rank of one of the first minima that differs in two pages, in bits of distance (rule 18)."""
MINIMUM_BITS: Final = 19
"""Bits of each of the first minima."""
RESERVE_BITS: Final = 16
"""Bits of each further one."""
KEY_WORDS: Final = 3
"""64-bit words that have the first minima."""
MINIMA_WORDS: Final = 8
"""64-bit words that have all minima."""
LAST_PLACE: Final = TRIANGLE * MINIMUM_BITS
"""Lowest of the bits in each of the first words that have a part of the last minimum."""
LAST_BITS: Final = 64 - LAST_PLACE
"""Bits of the last minimum in each of the first words."""
A_WORD: Final = 64 // RESERVE_BITS
"""Further minima in a word."""
THIRTIETHS: Final = tuple(
    first + third * (MINIMA // TRIANGLE)
    for first in (0, 3, 6, 9, 2, 5, 8, 1, 4, 7)
    for third in range(TRIANGLE)
)
"""The thirtieth that each minimum is of, triangle by triangle."""
SIDES: Final = ((0, 1), (1, 2), (0, 2))
"""The pairs of a triangle."""
_EDGES: Final = (np.array(THIRTIETHS, np.uint64) * 2**32 // MINIMA).astype(np.uint32)
_FIRST: Final = np.uint64((1 << MINIMUM_BITS) - 1)
_FURTHER: Final = np.uint64((1 << RESERVE_BITS) - 1)
_LAST: Final = np.uint64((1 << LAST_BITS) - 1)
_KEY_WORDS: Final = np.arange(KEY_WORDS, dtype=np.uint64)
_FIRST_PLACES: Final = np.uint64(MINIMUM_BITS) * np.arange(TRIANGLE, dtype=np.uint64)
_FURTHER_PLACES: Final = np.uint64(RESERVE_BITS) * np.arange(A_WORD, dtype=np.uint64)


def minima(ordered: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Return the minima of a set of well mixed shingle hashes (n,), n > 0, ascending, as words
    (MINIMA_WORDS,). They have the lowest bits of each minimum, which do not depend on its size."""
    least = ordered.take(ordered.searchsorted(_EDGES), mode="wrap").astype(np.uint64)
    words = np.empty(MINIMA_WORDS, np.uint64)
    first = least[:FIRST_MINIMA].reshape(KEY_WORDS, TRIANGLE) & _FIRST
    further = least[FIRST_MINIMA:-1].reshape(-1, A_WORD) & _FURTHER
    words[:KEY_WORDS] = np.bitwise_or.reduce(first << _FIRST_PLACES, axis=1)
    words[KEY_WORDS:] = np.bitwise_or.reduce(further << _FURTHER_PLACES, axis=1)
    parts = (least[-1] & _FURTHER) >> np.uint64(LAST_BITS) * _KEY_WORDS & _LAST
    words[:KEY_WORDS] |= parts << np.uint64(LAST_PLACE)
    return words


def unpacked(words: NDArray[np.uint64]) -> list[int]:
    """Return the bits of each of the minima, given as words (MINIMA_WORDS,)."""
    key, further = words[:KEY_WORDS, None], words[KEY_WORDS:, None]
    last = (key[:, 0] >> np.uint64(LAST_PLACE)).tolist()
    return [
        *(key >> _FIRST_PLACES & _FIRST).ravel().tolist(),
        *(further >> _FURTHER_PLACES & _FURTHER).ravel().tolist(),
        sum(part << LAST_BITS * word for word, part in enumerate(last)),
    ]


def equal_minima(one: NDArray[np.uint64], other: NDArray[np.uint64]) -> list[bool]:
    """Return for each of the minima whether it is equal in two sets, given as words (MINIMA_WORDS,)."""
    return [a == b for a, b in zip(unpacked(one), unpacked(other), strict=True)]

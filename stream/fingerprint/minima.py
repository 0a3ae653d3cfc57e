"""Ten minima of a set of shingles, by which tables find candidates (LSH banding).

The minima are the least hash in each tenth of the range of hashes (one permutation hashing: Li, Owen and
Zhang, NIPS 2012). An empty tenth takes the next hash after it, wrapping around at the end. Each minimum is
the same for two sets with a probability equal to their Jaccard similarity J. There is a table for each two of
the first five minima, so two pages are candidates if two of these agree. One probe per table finds pairs with
J = 0.8 in 993 of 1000 cases, and misses one in 2000 with J = 0.9.

The first five are of every other tenth, so that they are the same shingle only if a whole fifth is empty: of
ten shingles neighbouring tenths often have the same minimum.

The minima are packed into three 64-bit words, of which the first nine take 19 bits each, three to a word, so
that no table needs bits of two words for one minimum. The tenth is in what is left at the top of the words.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.scheme import MINIMA, MINIMA_WORDS, MINIMUM_BITS

A_WORD: Final = 3
"""Whole minima in a word."""
LAST_PLACE: Final = A_WORD * MINIMUM_BITS
"""Lowest of the bits in each word that have a part of the last minimum."""
LAST_BITS: Final = 64 - LAST_PLACE
"""Bits of the last minimum in each word but the last."""
TENTHS: Final = (*range(0, MINIMA, 2), *range(1, MINIMA, 2))
"""The tenth that each minimum is of."""
_EDGES: Final = (np.array(TENTHS, np.uint64) * 2**32 // MINIMA).astype(np.uint32)
_MASK: Final = np.uint64((1 << MINIMUM_BITS) - 1)
_LAST_MASK: Final = np.uint64((1 << LAST_BITS) - 1)
_WORDS: Final = np.arange(MINIMA_WORDS, dtype=np.uint64)


def minima(ordered: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Return the minima of a set of well mixed shingle hashes (n,), n > 0, ascending, as words
    (MINIMA_WORDS,). They have the lowest bits of each minimum, which do not depend on its size."""
    least = ordered.take(ordered.searchsorted(_EDGES), mode="wrap") & _MASK
    shifts = np.uint64(MINIMUM_BITS) * np.arange(A_WORD, dtype=np.uint64)
    words: NDArray[np.uint64] = np.bitwise_or.reduce(
        least[:-1].reshape(MINIMA_WORDS, A_WORD) << shifts, axis=1
    )
    words |= (least[-1] >> np.uint64(LAST_BITS) * _WORDS & _LAST_MASK) << np.uint64(LAST_PLACE)
    return words


def equal_minima(one: NDArray[np.uint64], other: NDArray[np.uint64]) -> list[bool]:
    """Return for each of the minima whether it is equal in two sets, given as words (MINIMA_WORDS,)."""
    apart = one ^ other
    whole = [not int(word) >> MINIMUM_BITS * place & int(_MASK) for word in apart for place in range(A_WORD)]
    return [*whole, not (apart >> np.uint64(LAST_PLACE)).any()]

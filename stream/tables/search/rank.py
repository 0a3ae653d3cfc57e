"""The rank of candidates: a page is compared with those of the least rank (rule 18).

The rank is the distance of the fingerprints and `MINIMUM_RANK` for each of the first nine minima that
differ, where tables index minima. The fingerprint of a page does not depend on the order of its words, and
strangers that share a template are often as near as a copy; but they have fewer minima in common.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled, inlined, popcount
from stream.fingerprint.minima import FIRST_MINIMA, KEY_WORDS, MINIMUM_BITS, MINIMUM_RANK, TRIANGLE
from stream.tables.arrays import I64, U8, U64
from stream.tables.search.packed_pairs import Integer

RANKS: Final = 256
"""Number of ranks: fingerprints have at most 128 bits."""
_HIGHEST: Final = np.uint64(sum(1 << MINIMUM_BITS * place + MINIMUM_BITS - 1 for place in range(TRIANGLE)))
"""The highest bit of each minimum in a word."""
_LOWER: Final = np.uint64((1 << TRIANGLE * MINIMUM_BITS) - 1) ^ _HIGHEST
_SHORT_BITS: Final = 64 // FIRST_MINIMA
"""Bits of a minimum in abridged minima."""
_SHORT_HIGHEST: Final = np.uint64(
    sum(1 << _SHORT_BITS * place + _SHORT_BITS - 1 for place in range(FIRST_MINIMA))
)
_SHORT_LOWER: Final = np.uint64((1 << FIRST_MINIMA * _SHORT_BITS) - 1) ^ _SHORT_HIGHEST


@inlined
def rank_of(distance: Integer, words: U64, row: Integer, others: U64, other: Integer | np.uint64) -> np.int64:
    """The rank of two pages at this distance, whose keys are rows of `words` and of `others`. Both are (n, W)
    or have further columns."""
    if words.shape[1] < KEY_WORDS:  # no minima
        return np.int64(distance)
    unequal = np.uint64(0)
    for word in range(KEY_WORDS):
        unequal |= _unequal(words[row, word] ^ others[other, word]) >> np.uint64(word)
    return np.int64(distance) + MINIMUM_RANK * popcount(unequal)


@compiled
def abridged_minima(words: U64) -> U64:
    """The lowest bits of the first minima of keys (n, W), in a word each (n,); 0 where keys have no
    minima."""
    short = np.empty(len(words), np.uint64)
    for row in range(len(words)):
        short[row] = abridged_minima_of(words, row)
    return short


@inlined
def abridged_minima_of(words: U64, row: Integer) -> np.uint64:
    """The same of one of the keys, which may have further columns."""
    if words.shape[1] < KEY_WORDS:
        return np.uint64(0)
    mask, bits, short = np.uint64((1 << _SHORT_BITS) - 1), np.uint64(_SHORT_BITS), np.uint64(0)
    for word in range(KEY_WORDS):
        for place in range(TRIANGLE):
            minimum = words[row, word] >> np.uint64(MINIMUM_BITS * place)
            short = short << bits | minimum & mask
    return short


@inlined
def least_rank(distance: np.int64, short: np.uint64, other: np.uint64) -> np.int64:
    """A bound below the rank of two pages at this distance, by their abridged minima. It is the rank, but for
    unequal minima of which the lowest bits are equal."""
    apart = short ^ other
    return distance + MINIMUM_RANK * popcount(
        ((apart & _SHORT_LOWER) + _SHORT_LOWER | apart) & _SHORT_HIGHEST
    )


@compiled
def ranks_of(distance: U8, words: U64, row: I64, others: U64, other: I64) -> NDArray[np.uint8]:
    """The ranks (m,) of pairs at these distances (m,), whose keys are the rows `row` of `words` and the rows
    `other` of `others`."""
    ranks = np.empty(len(row), np.uint8)
    for pair in range(len(row)):
        ranks[pair] = rank_of(np.int64(distance[pair]), words, row[pair], others, other[pair])
    return ranks


@compiled
def _unequal(apart: np.uint64) -> np.uint64:
    """The highest bit of each minimum of a word of which any bit differs."""
    # In the lower bits of a minimum, all but 0 carries into the highest one.
    return ((apart & _LOWER) + _LOWER | apart) & _HIGHEST

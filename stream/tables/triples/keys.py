"""The triples of a page's minima, and their keys.

Pairs are of the first five minima, and their tables come first. Below the pair of the minima i < j there are
three triples: of i, j and one of the next three after j. The three values are mixed into one prefix, so that
all triples share one table.
"""

from __future__ import annotations

from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled
from stream.fingerprint.minima import A_WORD
from stream.fingerprint.scheme import MINIMA_WORDS, MINIMUM_BITS, TABLE_MINIMA
from stream.tables.arrays import I64, U64
from stream.tables.design import LONGEST_PREFIX, TABLE_BITS, Block, Design
from stream.tables.search.packed_pairs import Integer

A_PAIR: Final = 3
"""Triples below a pair. With one, four times as many copies are missed among pages that share a template."""
_PAIRS: Final = tuple(combinations(range(TABLE_MINIMA), 2))
PAIRS: Final = len(_PAIRS)
TRIPLES: Final = A_PAIR * PAIRS
BUCKETS: Final = PAIRS + TRIPLES
"""Buckets of a page: its pairs, and then its triples, those of the first pair first."""
DESIGN: Final = Design(
    1, 1, 64 * (MINIMA_WORDS + 1), (Block(MINIMA_WORDS, 0, LONGEST_PREFIX),), first_family=PAIRS
)
"""The table of triples. Its keys are the minima, and the prefix of a triple as a further word."""
TRIPLES_OF_MINIMA: Final = tuple(
    (one, two, two + step) for one, two in _PAIRS for step in range(1, A_PAIR + 1)
)
"""The minima of each triple."""
_MINIMA: Final = np.array(TRIPLES_OF_MINIMA, np.uint64)
_MINIMUM: Final = np.uint64((1 << MINIMUM_BITS) - 1)
_A_MINIMUM: Final = np.uint64(MINIMUM_BITS)
_A_WORD: Final = np.uint64(A_WORD)
_LEFT_OUT: Final = np.uint64(64 - LONGEST_PREFIX)
_NUMBER_PLACE: Final = np.uint64(3 * MINIMUM_BITS)
_FIRST: Final = np.uint64(0xBF58_476D_1CE4_E5B9)
_SECOND: Final = np.uint64(0x94D0_49BB_1331_11EB)


@compiled
def prefix_of_triple(words: U64, row: Integer, triple: Integer) -> np.uint64:
    """The prefix of a triple of the page whose key is a row of `words`, which may have further columns: the
    output function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) of the values and the triple's number.
    """
    mixed = np.uint64(triple) << _NUMBER_PLACE
    for place in range(3):
        minimum = _MINIMA[triple, place]
        value = words[row, minimum // _A_WORD] >> minimum % _A_WORD * _A_MINIMUM & _MINIMUM
        mixed |= value << np.uint64(place) * _A_MINIMUM
    mixed = (mixed ^ mixed >> np.uint64(30)) * _FIRST
    mixed = (mixed ^ mixed >> np.uint64(27)) * _SECOND
    return (mixed ^ mixed >> np.uint64(31)) >> _LEFT_OUT


@compiled
def key_of_triple(words: U64, row: Integer, triple: Integer) -> np.uint64:
    """The key of a triple's bucket, as by `Design.keys` if their table followed those of pairs."""
    return prefix_of_triple(words, row, triple) << np.uint64(TABLE_BITS) | np.uint64(PAIRS)


@compiled
def keys_of_some(words: U64, row: I64, triple: I64) -> U64:
    """The keys (m,) of the triples (m,) of the rows (m,) of keys (n, W)."""
    keys = np.empty(len(row), np.uint64)
    for i in range(len(row)):
        keys[i] = key_of_triple(words, row[i], triple[i])
    return keys


def keys_of_triples(words: U64) -> U64:
    """The keys (n, TRIPLES) of all triples of keys (n, W)."""
    row, triple = np.divmod(np.arange(len(words) * TRIPLES), TRIPLES)
    return keys_of_some(words, row, triple).reshape(-1, TRIPLES)


def pairs_above(triples: U64) -> NDArray[np.bool_]:
    """Whether any of an anchor's triples, given as bit masks (n,), is below each pair: (n, PAIRS)."""
    first = np.uint64(A_PAIR) * np.arange(PAIRS, dtype=np.uint64)
    above: NDArray[np.bool_] = triples[:, None] >> first & np.uint64((1 << A_PAIR) - 1) != 0
    return above


def stand_below_full_pairs(masks: U64) -> NDArray[np.bool_]:
    """Whether the triples of each anchor's mask (n,) are all below pairs that it was kept out of."""
    kept_out = masks[:, None] >> np.arange(PAIRS, dtype=np.uint64) & np.uint64(1) != 0
    right: NDArray[np.bool_] = (kept_out | ~pairs_above(masks >> np.uint64(PAIRS))).all(axis=1)
    return right

"""The buckets of a page by its minima: nine first pairs, 21 pairs in reserve, and one of all minima (rule
16).

The first pairs have a table each. All reserves share one table: what decides about a bucket is mixed into one
prefix.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled
from stream.fingerprint.minima import (
    A_WORD,
    FIRST_MINIMA,
    KEY_WORDS,
    LAST_BITS,
    LAST_PLACE,
    MINIMA,
    MINIMA_WORDS,
    MINIMUM_BITS,
    RESERVE_BITS,
    SIDES,
    TRIANGLE,
)
from stream.tables.arrays import I64, U64
from stream.tables.design import LONGEST_PREFIX, TABLE_BITS, Block, Design
from stream.tables.search.packed_pairs import Integer

PAIRS: Final = FIRST_MINIMA
"""Buckets into which every page looks: the first pairs, as many as minima."""
RESERVES: Final = MINIMA - FIRST_MINIMA + 1
"""Further buckets: the other pairs, and the last resort, of all minima."""
LAST_RESORT: Final = RESERVES - 1
"""Among the reserves."""
BUCKETS: Final = PAIRS + RESERVES
ALL_PAIRS: Final = BUCKETS - 1
FIRST_PAIRS: Final = Design(
    PAIRS,
    2,
    64 * KEY_WORDS,
    [Block(at // TRIANGLE, at % TRIANGLE * MINIMUM_BITS, MINIMUM_BITS) for at in range(FIRST_MINIMA)],
    subsets=[
        (TRIANGLE * triangle + a, TRIANGLE * triangle + b)
        for triangle in range(FIRST_MINIMA // TRIANGLE)
        for a, b in SIDES
    ],
)
"""The tables of the first pairs."""
DESIGN: Final = Design(1, 1, 64 * (KEY_WORDS + 1), (Block(KEY_WORDS, 0, LONGEST_PREFIX),), first_family=PAIRS)
"""The table of reserves. Its keys are the first minima, and the prefix of a reserve as a further word."""
_SIDES: Final = np.array(SIDES, np.int64)
_RESERVE_BITS: Final = np.uint64(RESERVE_BITS)
_MINIMUM: Final = np.uint64((1 << RESERVE_BITS) - 1)
_LAST_PLACE: Final = np.uint64(LAST_PLACE)
_LAST_BITS: Final = np.uint64(LAST_BITS)
_LEFT_OUT: Final = np.uint64(64 - LONGEST_PREFIX)
_NUMBER_PLACE: Final = np.uint64(2 * RESERVE_BITS)
_FIRST: Final = np.uint64(0xBF58_476D_1CE4_E5B9)
_SECOND: Final = np.uint64(0x94D0_49BB_1331_11EB)


@compiled
def _mixed(value: np.uint64) -> np.uint64:
    """The output function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    value = (value ^ value >> np.uint64(30)) * _FIRST
    value = (value ^ value >> np.uint64(27)) * _SECOND
    return value ^ value >> np.uint64(31)


@compiled
def _further(words: U64, row: Integer, at: Integer) -> np.uint64:
    """One of the minima after the first ones, counted from 0 on."""
    minimum = np.uint64(0)
    if at < (MINIMA_WORDS - KEY_WORDS) * A_WORD:
        minimum = words[row, KEY_WORDS + at // A_WORD] >> np.uint64(at % A_WORD) * _RESERVE_BITS
    else:
        for word in range(KEY_WORDS):
            minimum |= (words[row, word] >> _LAST_PLACE) << np.uint64(word) * _LAST_BITS
    return np.uint64(minimum & _MINIMUM)


@compiled
def prefix_of_reserve(words: U64, row: Integer, reserve: Integer) -> np.uint64:
    """The prefix of a reserve of the page whose minima are a row of `words` (n, MINIMA_WORDS)."""
    mixed = np.uint64(reserve) << _NUMBER_PLACE
    if reserve == LAST_RESORT:
        for word in range(MINIMA_WORDS):
            mixed = _mixed(mixed ^ words[row, word])
        return mixed >> _LEFT_OUT
    first = reserve // TRIANGLE * TRIANGLE
    for end in range(2):
        minimum = _further(words, row, first + _SIDES[reserve % TRIANGLE, end])
        mixed |= minimum << np.uint64(end) * _RESERVE_BITS
    return _mixed(mixed) >> _LEFT_OUT


@compiled
def keys_of_reserves(words: U64) -> U64:
    """The keys (n, RESERVES) of all reserves of minima (n, MINIMA_WORDS), as by `Design.keys` if their table
    followed those of pairs."""
    keys = np.empty((len(words), RESERVES), np.uint64)
    for row in range(len(words)):
        for reserve in range(RESERVES):
            prefix = prefix_of_reserve(words, row, reserve)
            keys[row, reserve] = prefix << np.uint64(TABLE_BITS) | np.uint64(PAIRS)
    return keys


def minima_of_reserve(reserve: int) -> list[int]:
    """The minima that decide about a reserve."""
    if reserve == LAST_RESORT:
        return list(range(MINIMA))
    first = FIRST_MINIMA + reserve // TRIANGLE * TRIANGLE
    return [first + end for end in SIDES[reserve % TRIANGLE]]


def are_possible(masks: U64) -> NDArray[np.bool_]:
    """Whether an anchor may have each of these masks (n,), by rule 16: it stays out of first pairs, enters at
    most as many others, and the last resort in place of all. 0, of an anchor that stays out of none, is not
    written down."""
    out = np.bitwise_count(masks & np.uint64((1 << PAIRS) - 1))
    entered = np.bitwise_count(masks >> np.uint64(PAIRS) & np.uint64((1 << LAST_RESORT) - 1))
    resorts = masks >> np.uint64(PAIRS + LAST_RESORT) != 0
    possible = (out > 0) & (entered <= out) & (masks >> np.uint64(BUCKETS) == 0)
    possible &= ~resorts | ((out == PAIRS) & (entered == 0))
    return np.asarray(possible, np.bool_)


def crowded_rows(sizes: I64, entering: I64, cap: int) -> NDArray[np.bool_]:
    """Whether one of the first buckets of each row may be full when it is the row's turn: `sizes` (n, PAIRS)
    live anchors are there, and at most `entering` (n, PAIRS) rows of the batch enter it, this one
    included."""
    return np.asarray((sizes + entering > cap).any(axis=1), np.bool_)

"""The buckets of a page by its minima: nine first pairs, 21 pairs in reserve, and one of all minima (rule
16).

The first pairs have a table each. All reserves share one table: what decides about a bucket is mixed into one
prefix.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled, popcount
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
from stream.tables.design import TABLE_BITS, Block, Design
from stream.tables.hashing import mixed
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
PREFIX_BITS: Final = 2 * MINIMUM_BITS
"""Bits of a reserve's prefix, as many as those of a first pair."""
_SIDES: Final = np.array(SIDES, np.int64)
_RESERVE_BITS: Final = np.uint64(RESERVE_BITS)
_MINIMUM: Final = np.uint64((1 << RESERVE_BITS) - 1)
_LAST_PLACE: Final = np.uint64(LAST_PLACE)
_LAST_BITS: Final = np.uint64(LAST_BITS)
_LEFT_OUT: Final = np.uint64(64 - PREFIX_BITS)
_NUMBER_PLACE: Final = np.uint64(2 * RESERVE_BITS)


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
    value = np.uint64(reserve) << _NUMBER_PLACE
    if reserve == LAST_RESORT:
        for word in range(MINIMA_WORDS):
            value = mixed(value ^ words[row, word])
        return value >> _LEFT_OUT
    first = reserve // TRIANGLE * TRIANGLE
    for end in range(2):
        minimum = _further(words, row, first + _SIDES[reserve % TRIANGLE, end])
        value |= minimum << np.uint64(end) * _RESERVE_BITS
    return mixed(value) >> _LEFT_OUT


@compiled
def _key_of(words: U64, row: Integer, reserve: Integer) -> np.uint64:
    """The key of a reserve, as by `Design.keys` if their table followed those of pairs."""
    return prefix_of_reserve(words, row, reserve) << np.uint64(TABLE_BITS) | np.uint64(PAIRS)


@compiled
def keys_of_reserves(words: U64) -> U64:
    """The keys (n, RESERVES) of all reserves of minima (n, MINIMA_WORDS)."""
    keys = np.empty((len(words), RESERVES), np.uint64)
    for row in range(len(words)):
        for reserve in range(RESERVES):
            keys[row, reserve] = _key_of(words, row, reserve)
    return keys


@compiled
def entries_of(words: U64, reserves: U64) -> tuple[U64, U64]:
    """The rows (k,) of pages that enter reserves, one for each that they enter, and the keys of these (k,).
    `words` are the minima of n pages, and `reserves` the bit masks (n,) of those that each enters."""
    entries = np.int64(0)
    for mask in reserves:
        entries += popcount(mask)
    rows, keys, entry = np.empty(entries, np.uint64), np.empty(entries, np.uint64), 0
    for row in range(len(reserves) if entries else 0):
        for reserve in range(RESERVES):
            if reserves[row] >> np.uint64(reserve) & np.uint64(1):
                rows[entry], keys[entry] = row, _key_of(words, row, reserve)
                entry += 1
    return rows, keys


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

"""The pairs below which an anchor stands in a triple: only their triples are worth a look."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from stream.compiled import compiled
from stream.tables.arrays import I64, U64

_MIX: Final = np.uint64(0x9E37_79B9_7F4A_7C15)
_FIRST: Final = 1 << 10


class PairSet(NamedTuple):
    """Keys of pairs, in a hash table with linear probing."""

    places: U64
    """(2**b,): key + 1, 0 for none; at most half of them are taken."""
    size: int


@compiled
def no_pairs() -> PairSet:
    """The empty set."""
    return PairSet(np.zeros(_FIRST, np.uint64), 0)


@compiled
def _place(places: U64, key: np.uint64) -> np.int64:
    """Where the key is, or belongs."""
    mask = np.uint64(len(places) - 1)
    at = (key * _MIX >> np.uint64(32)) & mask
    while places[at] and places[at] != key + np.uint64(1):
        at = (at + np.uint64(1)) & mask
    return np.int64(at)


@compiled
def with_pairs(opened: PairSet, keys: U64) -> PairSet:
    """The set with further keys (n,), of which some may be there. The old set may still be read, but has only
    a part of them."""
    places, size = opened.places, opened.size
    for key in keys:
        at = _place(places, key)
        if places[at]:
            continue
        if 2 * size >= len(places):
            grown = np.zeros(2 * len(places), np.uint64)
            for taken in places:
                if taken:
                    grown[_place(grown, taken - np.uint64(1))] = taken
            places = grown
            at = _place(places, key)
        places[at] = key + np.uint64(1)
        size += 1
    return PairSet(places, size)


@compiled
def opened_among(opened: PairSet, keys: U64) -> I64:
    """The indexes, row * PAIRS + pair, of those keys (n, PAIRS) that are in the set."""
    flat = keys.ravel()
    inside = np.empty(len(flat), np.int64)
    count = 0
    for i in range(len(flat)):
        inside[count] = i
        count += opened.places[_place(opened.places, flat[i])] != np.uint64(0)
    return inside[:count].copy()

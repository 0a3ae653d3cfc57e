"""Copies of buckets in long chains, for the compiled search of the hot tier: many rows of spam look into the
same bucket, and reading it from contiguous memory takes a tenth of the time of following its chain."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from stream.compiled import compiled, inlined, popcount
from stream.tables.arrays import I64, U8, U64
from stream.tables.hot.chains import Chains, Ring, ring_row
from stream.tables.search.packed_pairs import is_dead
from stream.tables.search.prefixes_compiled import prefix_of

COPIES: Final = 4096
"""Buckets of which the place of the copy is known."""
_WAYS: Final = 4
"""Places that a bucket may have. With one, two buckets of a template that collide are copied again for every
page."""
COPIED: Final = 1 << 18
"""Anchors copied, 14 MiB, before all copies are discarded."""
FIRST_COPIED: Final = 1 << 12
_MIX: Final = np.uint64(0x9E37_79B9_7F4A_7C15)


class Copies(NamedTuple):
    """Live anchors of buckets that were copied from chains, each bucket's oldest first."""

    places: I64
    """(COPIES, 4), a set-associative cache: number + 1 of a chain's first anchor (as in `Chains`), 0 for
    none, its table, and the first and end of the copy."""
    prefixes: U64
    """(COPIES,): the prefix of the bucket."""
    numbers: U64
    """(m,): numbers, as in pairs."""
    prints: U64
    """(m,): fingerprints."""
    filled: int
    """Number of anchors copied."""
    near: I64
    """Room for indexes within any copy."""


class Bucket(NamedTuple):
    """The anchors with one prefix in a chain, or what is left of it."""

    start: np.int64
    """Number + 1 of the chain's first anchor, as in `Chains`."""
    table: np.int64
    prefix: np.uint64


@compiled
def no_copies() -> Copies:
    """An empty cache."""
    none = np.empty(0, np.uint64)
    return Copies(
        np.zeros((COPIES, 4), np.int64), np.zeros(COPIES, np.uint64), none, none, 0, np.empty(0, np.int64)
    )


@inlined
def place_of(bucket: Bucket, chains: Chains, copies: Copies) -> np.int64:
    """The place in `Copies.places` of the copy of a bucket, -1 for none."""
    places, prefixes = copies.places, copies.prefixes
    first = _first_place(bucket, chains)
    for place in range(first, first + _WAYS):
        if (
            places[place, 0] == bucket.start
            and places[place, 1] == bucket.table
            and prefixes[place] == bucket.prefix
        ):
            return np.int64(place)
    return np.int64(-1)


@inlined
def _first_place(bucket: Bucket, chains: Chains) -> np.int64:
    """The first of the places that a bucket may have."""
    mixed = (np.uint64(bucket.start * chains.links.shape[1] + bucket.table) ^ bucket.prefix) * _MIX
    return np.int64(mixed >> np.uint64(32)) % (COPIES // _WAYS) * _WAYS


@compiled
def copy_bucket(bucket: Bucket, chains: Chains, ring: Ring, dead: U8, copies: Copies) -> Copies:
    """The copies, and one of this bucket."""
    start, table, prefix = bucket
    places, prefixes, numbers, prints, first, near = copies
    rows, links, place = ring.rows, chains.links, _first_place(bucket, chains)
    after, count = start, 0
    while after > ring.floor:
        at = ring_row(ring, after)
        if not is_dead(after + ring.shift, dead) and prefix_of(rows, at, chains.pieces, table) == prefix:
            if count == len(near):
                near = _with_room(near, 2 * count + FIRST_COPIED)
            near[count] = after
            count += 1
        after = np.int64(links[at, table])
    if first > COPIED:
        places[:, 0], first = 0, 0
    end = first + count
    if end > len(numbers):
        room = 2 * end + FIRST_COPIED
        numbers, prints = _grown(numbers, first, room), _grown(prints, first, room)
    for to in range(first, end):
        after = near[end - 1 - to]
        numbers[to], prints[to] = np.uint64(after + ring.shift), rows[ring_row(ring, after), -1]
    taken = 0
    while taken < _WAYS and places[place + taken, 0]:
        taken += 1
    place += taken if taken < _WAYS else np.int64(prefix % np.uint64(_WAYS))
    places[place, 0], places[place, 1], places[place, 2], places[place, 3] = start, table, first, end
    prefixes[place] = prefix
    return Copies(places, prefixes, numbers, prints, end, near)


@compiled
def _with_room(near: I64, room: int) -> I64:
    """Room for so many, with what is there."""
    grown = np.empty(room, np.int64)
    grown[: len(near)] = near
    return grown


@compiled
def _grown(column: U64, filled: int, room: int) -> U64:
    grown = np.empty(room, np.uint64)
    grown[:filled] = column[:filled]
    return grown


@inlined
def all_near(copies: Copies, first: int, end: int, own: np.uint64, reach: int) -> int:
    """How many of the anchors [first, end) have fingerprints within `reach` of `own`. Writes their indexes,
    relative to `first`, to `copies.near`."""
    prints, near = copies.prints[first:end], copies.near
    close = np.int64(0)
    for at in range(len(prints)):  # branch-free, so that it is vectorised
        near[close] = at
        close += popcount(prints[at] ^ own) <= reach
    return int(close)

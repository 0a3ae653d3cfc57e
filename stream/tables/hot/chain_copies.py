"""Copies of buckets in long chains, for the compiled search of the hot tier: many rows of spam look into the
same bucket, and reading it from contiguous memory takes a tenth of the time of following its chain."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from stream.compiled import compiled, inlined, popcount
from stream.tables.arrays import I64, U8, U64
from stream.tables.hot.chains import Chains, Ring, ring_row
from stream.tables.search.near import LOOKED_AT_ONCE, lowest_place, perhaps_near
from stream.tables.search.nearest import SEEN, Kept, anchor_of, keep
from stream.tables.search.packed_pairs import is_dead, pack_pair, place_among
from stream.tables.search.prefixes_compiled import prefix_of
from stream.tables.search.queries import Queries
from stream.tables.search.rank import abridged_minima_of, rank_of

COPIES: Final = 4096
"""Buckets of which the place of the copy is known."""
_WAYS: Final = 4
"""Places that a bucket may have. With one, two buckets of a template that collide are copied again for every
page."""
COPIED: Final = 1 << 18
"""Anchors copied, 14 MiB, before all copies are discarded."""
FIRST_COPIED: Final = 1 << 12
MORTAL: Final = np.uint64(40)
"""Lowest bit of the field in a copied anchor's number that holds its index in `Kept.mortal` plus 1; 0 if
it is not mortal."""
NUMBER: Final = (np.uint64(1) << MORTAL) - np.uint64(1)
_MIX: Final = np.uint64(0x9E37_79B9_7F4A_7C15)


class Copies(NamedTuple):
    """Live anchors of buckets that were copied from chains, each bucket's oldest first.

    Arrays by anchor have room for LOOKED_AT_ONCE more, as that many are read at any place.
    """

    places: I64
    """(COPIES, 4), a set-associative cache: number + 1 of a chain's first anchor (as in `Chains`), 0 for
    none, its table, and the first and end of the copy."""
    prefixes: U64
    """(COPIES,): the prefix of the bucket."""
    numbers: U64
    """(m,): numbers, as in pairs, with the `MORTAL` field."""
    prints: U64
    """(m,): fingerprints."""
    minima: U64
    """(m,): abridged minima."""
    words: U64
    """(m, W): keys."""
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
def no_copies(words: int) -> Copies:
    """An empty cache, for keys of so many words."""
    none = np.empty(0, np.uint64)
    return Copies(
        np.zeros((COPIES, 4), np.int64),
        np.zeros(COPIES, np.uint64),
        none,
        none,
        none,
        np.empty((0, words), np.uint64),
        0,
        np.empty(0, np.int64),
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
def copy_bucket(bucket: Bucket, chains: Chains, ring: Ring, dead: U8, kept: Kept, copies: Copies) -> Copies:
    """The copies, and one of this bucket."""
    start, table, prefix = bucket
    places, prefixes, numbers, prints, minima, words, first, near = copies
    rows, links, mortal, place = ring.rows, chains.links, kept.mortal, _first_place(bucket, chains)
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
    if end + LOOKED_AT_ONCE > len(numbers):
        room = 2 * end + FIRST_COPIED
        numbers, prints = _grown(numbers, first, room), _grown(prints, first, room)
        minima, more = _grown(minima, first, room), np.empty((room, words.shape[1]), np.uint64)
        more[:first] = words[:first]
        words = more
    for to in range(first, end):
        after = near[end - 1 - to]
        number, at = anchor_of(after + ring.shift, kept.numbers), ring_row(ring, after)
        numbers[to] = np.uint64(number) | np.uint64(place_among(number, mortal) + 1) << MORTAL
        prints[to], minima[to] = rows[at, -1], abridged_minima_of(rows, at)
        for word in range(words.shape[1]):
            words[to, word] = rows[at, word]
    taken = 0
    while taken < _WAYS and places[place + taken, 0]:
        taken += 1
    place += taken if taken < _WAYS else np.int64(prefix % np.uint64(_WAYS))
    places[place, 0], places[place, 1], places[place, 2], places[place, 3] = start, table, first, end
    prefixes[place] = prefix
    return Copies(places, prefixes, numbers, prints, minima, words, end, near)


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


@inlined
def keep_near(copies: Copies, first: int, end: int, queries: Queries, row: np.int64, kept: Kept) -> None:
    """Keep those of the anchors [first, end) that may be among the nearest ones of the page of the query
    `row`."""
    numbers, prints, minima, words = copies.numbers, copies.prints, copies.minima, copies.words
    pairs, sizes, last_of, seen, dies = kept.pairs, kept.size, kept.last, kept.seen, kept.dies
    own, own_words = queries.fingerprints[row], queries.words
    own_minima = abridged_minima_of(own_words, row)
    page = kept.page[row]
    within, one = kept.within[page], np.uint64(1)
    for start in range(first, end, LOOKED_AT_ONCE):
        last = last_of[page]
        # Of equal rank, none counts that is younger than the last one that is kept. The oldest come first.
        younger = numbers[start] & NUMBER > last >> np.uint64(8) & np.uint64(0xFFFF_FFFF)
        bound = np.int64(last >> np.uint64(40)) - younger
        near = perhaps_near(prints, minima, start, own, own_minima, within, bound)
        if end - start < LOOKED_AT_ONCE:
            near &= (one << np.uint64(end - start)) - one
        while near:
            at = start + lowest_place(near)
            near &= near - one
            number, which = numbers[at] & NUMBER, numbers[at] >> MORTAL
            looked_at = np.uint64(page + 1) << MORTAL | number
            if seen[number % np.uint64(SEEN)] == looked_at or (which and dies[which - one] <= page):
                continue
            seen[number % np.uint64(SEEN)] = looked_at
            apart = popcount(prints[at] ^ own)
            rank = rank_of(apart, own_words, row, words, at)
            keep(pairs, sizes, last_of, page, pack_pair(rank, number, apart))

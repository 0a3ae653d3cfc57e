"""Copies of long chains, for the compiled search of the hot tier: many rows of spam follow the same chain,
and in contiguous memory a step takes a tenth of the time."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from stream.compiled import compiled, popcount
from stream.tables.arrays import I64, U8, U64
from stream.tables.hot.chains import Chains, Ring, ring_row
from stream.tables.search.packed_pairs import is_dead, place_among
from stream.tables.search.prefixes_compiled import prefix_of
from stream.tables.search.probing import Nearest

FINGERPRINT_BITS: Final = 64
COPIES: Final = 256
"""Chains of which the place of the copy is known."""
COPIED: Final = 1 << 18
"""Anchors copied, 6 MiB, before all copies are discarded."""
FIRST_COPIED: Final = 1 << 12
MORTAL: Final = np.uint64(40)
"""Lowest bit of the field in a copied anchor's number that holds its index in `Nearest.mortal` plus 1; 0 if
it is not mortal."""
NUMBER: Final = (np.uint64(1) << MORTAL) - np.uint64(1)


class Copies(NamedTuple):
    """Live anchors of copied chains, newest first."""

    chains: I64
    """(COPIES, 4), a direct-mapped cache: number + 1 of a chain's first anchor, its table, and the first and
    end of its copy."""
    anchors: U64
    """(3, m): prefix in the chain's table, fingerprint, and number with the `MORTAL` field."""
    filled: int
    """Number of anchors copied."""
    near: I64
    """(m,): room for indexes within a copy."""


class Wanted(NamedTuple):
    """What is compared with a copy: a probed prefix and the fingerprint."""

    prefix: np.uint64
    fingerprint: np.uint64


@compiled
def no_copies() -> Copies:
    """An empty cache."""
    return Copies(np.zeros((COPIES, 4), np.int64), np.empty((3, 0), np.uint64), 0, np.empty(0, np.int64))


@compiled
def copy_of(copies: Copies, chains: Chains, start: np.int64, table: np.int64) -> I64:
    """The place in `Copies.chains` for a table's chain from the anchor before number `start` on. It may have
    another chain's copy."""
    copy: I64 = copies.chains[(start * chains.links.shape[1] + table) % COPIES]
    return copy


@compiled
def copy_chain(
    chains: Chains, ring: Ring, dead: U8, mortal: I64, start: np.int64, table: np.int64, copies: Copies
) -> Copies:
    """The copies, and one of this chain."""
    places, anchors, filled, near = copies
    if filled > COPIED:
        places[:, 0], filled = 0, 0
    copy = copy_of(copies, chains, start, table)
    copy[0], copy[1], copy[2] = start, table, filled
    after = start
    while after > ring.floor:
        number, at = after - 1, ring_row(ring, after)
        if filled == anchors.shape[1]:
            grown = np.empty((3, 2 * filled + FIRST_COPIED), np.uint64)
            grown[:, :filled] = anchors
            anchors, near = grown, np.empty(grown.shape[1], np.int64)
        if not is_dead(number, dead):
            which = np.uint64(place_among(number, mortal) + 1)
            anchors[0, filled] = prefix_of(ring.rows, at, chains.pieces, table)
            anchors[1, filled] = ring.rows[at, -1]
            anchors[2, filled] = np.uint64(number) | which << MORTAL
            filled += 1
        after = np.int64(chains.links[at, table])
    copy[3] = filled
    return Copies(places, anchors, filled, near)


@compiled
def all_near(copies: Copies, first: int, end: int, wanted: Wanted, reach: int) -> tuple[int, int]:
    """The number of anchors [first, end) in the wanted bucket, and how many of these have fingerprints within
    `reach`. Writes the indexes of the latter, relative to `first`, to `copies.near`."""
    prefixes, fingerprints, near = copies.anchors[0, first:end], copies.anchors[1, first:end], copies.near
    there = close = 0
    for at in range(len(prefixes)):  # branch-free, so that it is vectorised
        same = prefixes[at] == wanted.prefix
        near[close] = at
        there += same
        close += same & (popcount(fingerprints[at] ^ wanted.fingerprint) <= reach)
    return there, close


@compiled
def oldest_near(
    copies: Copies, first: int, end: int, wanted: Wanted, reach: int, row: int, nearest: Nearest
) -> tuple[int, int, int]:
    """Like `all_near`, but limited to anchors that may be among the `nearest.most` nearest, of equally near
    ones the oldest. Also returns the greatest distance at which further anchors may be among these."""
    at_distance = np.zeros(FINGERPRINT_BITS + 1, np.int64)
    there = close = nearer = 0
    bound = reach
    for at in range(end - 1, first - 1, -1):
        if copies.anchors[0, at] != wanted.prefix:
            continue
        there += 1
        apart = popcount(copies.anchors[1, at] ^ wanted.fingerprint)
        if apart > bound:
            continue
        which = copies.anchors[2, at] >> MORTAL
        if which and nearest.dies[which - np.uint64(1)] <= row:
            continue
        copies.near[close] = at - first
        close += 1
        at_distance[apart] += 1
        nearer += 1
        while nearer >= nearest.most and bound >= 0:
            reach = bound
            nearer -= at_distance[bound]
            bound -= 1
    return there, close, reach

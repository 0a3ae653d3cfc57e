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
from stream.tables.search.rank import RANKS, add_ranks_of_minima

COPIES: Final = 4096
"""Chains of which the place of the copy is known."""
COPIED: Final = 1 << 18
"""Anchors copied, 12 MiB, before all copies are discarded."""
FIRST_COPIED: Final = 1 << 12
MORTAL: Final = np.uint64(40)
"""Lowest bit of the field in a copied anchor's number that holds its index in `Nearest.mortal` plus 1; 0 if
it is not mortal."""
LOOKED_AT_ONCE: Final = 256
"""Anchors of a copy that are ranked together."""
NUMBER: Final = (np.uint64(1) << MORTAL) - np.uint64(1)


class Copies(NamedTuple):
    """Live anchors of copied chains, newest first."""

    chains: I64
    """(COPIES, 4), a direct-mapped cache: number + 1 of a chain's first anchor (as in `Chains`), its table,
    and the first and end of its copy."""
    anchors: U64
    """(3, m): prefix in the chain's table, fingerprint, and number, as in pairs, with the `MORTAL` field."""
    lanes: U64
    """(W, m): keys."""
    filled: int
    """Number of anchors copied."""
    near: I64
    """(m,): room for indexes within a copy."""
    scratch: I64
    """(3, RANKS): room for `oldest_near`."""


class Wanted(NamedTuple):
    """What is compared with a copy: a probed prefix, and the query."""

    prefix: np.uint64
    fingerprint: np.uint64
    words: U64
    """The keys of all queries (n, W)."""
    row: np.int64
    """The query."""


@compiled
def no_copies(words: int) -> Copies:
    """An empty cache, for keys of so many words."""
    return Copies(
        np.zeros((COPIES, 4), np.int64),
        np.empty((3, 0), np.uint64),
        np.empty((words, 0), np.uint64),
        0,
        np.empty(0, np.int64),
        np.empty((3, RANKS), np.int64),
    )


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
    places, anchors, lanes, filled, near, scratch = copies
    if filled > COPIED:
        places[:, 0], filled = 0, 0
    copy = copy_of(copies, chains, start, table)
    copy[0], copy[1], copy[2] = start, table, filled
    after = start
    while after > ring.floor:
        number, at = after + ring.shift, ring_row(ring, after)
        if filled == anchors.shape[1]:
            grown = np.empty((3, 2 * filled + FIRST_COPIED), np.uint64)
            grown[:, :filled] = anchors
            more = np.empty((lanes.shape[0], grown.shape[1]), np.uint64)
            more[:, :filled] = lanes
            anchors, lanes, near = grown, more, np.empty(grown.shape[1], np.int64)
        if not is_dead(number, dead):
            which = np.uint64(place_among(number, mortal) + 1)
            anchors[0, filled] = prefix_of(ring.rows, at, chains.pieces, table)
            anchors[1, filled] = ring.rows[at, -1]
            anchors[2, filled] = np.uint64(number) | which << MORTAL
            for word in range(lanes.shape[0]):
                lanes[word, filled] = ring.rows[at, word]
            filled += 1
        after = np.int64(chains.links[at, table])
    copy[3] = filled
    return Copies(places, anchors, lanes, filled, near, scratch)


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
def oldest_near(copies: Copies, first: int, end: int, wanted: Wanted, nearest: Nearest) -> tuple[int, int]:
    """Like `all_near`, but limited to anchors that may be among the `nearest.most` of the least rank, of
    those of equal rank the oldest. Lowers the bounds of the query's page."""
    anchors, near, dies, bounds = copies.anchors, copies.near, nearest.dies, nearest.bounds
    # Indexed, a row is contiguous; unpacked, the compiler does not know it and makes no vector instructions.
    scratch, lanes, keys = copies.scratch, copies.lanes, wanted.words
    ranks, near_at, at_rank = scratch[0], scratch[1], scratch[2]
    row, page, most, farthest = wanted.row, nearest.page[wanted.row], nearest.most, nearest.within[wanted.row]
    greatest, youngest = bounds[page, 0], bounds[page, 1]
    bound = greatest
    at_rank[:] = 0
    there = close = nearer = 0
    for stop in range(end, first, -LOOKED_AT_ONCE):
        start = max(first, stop - LOOKED_AT_ONCE)
        all_younger = np.int64(anchors[2, stop - 1] & NUMBER) > youngest
        limit = bound - (all_younger and bound == greatest)
        within, close_here = min(farthest, limit), 0
        # No branch and no slice, so that it is vectorised and no reference is counted.
        for i in range(stop - start):
            at = np.uint64(start + i)
            same, apart = anchors[0, at] == wanted.prefix, popcount(anchors[1, at] ^ wanted.fingerprint)
            near_here = same & (apart <= within)
            ranks[i] = apart + RANKS * (1 - near_here)
            there += same
            close_here += near_here
        if not close_here:
            continue
        add_ranks_of_minima(ranks, keys, row, lanes, start, stop)
        close_here = 0
        for i in range(stop - start):  # without a branch, too
            near_at[close_here] = i
            close_here += ranks[i] <= limit
        for place in range(close_here - 1, -1, -1):
            rank, at = ranks[near_at[place]], np.uint64(start + near_at[place])
            number, which = np.int64(anchors[2, at] & NUMBER), anchors[2, at] >> MORTAL
            if rank > bound or (rank == greatest and number > youngest):
                continue
            if which and dies[which - np.uint64(1)] <= row:
                continue
            near[close] = np.int64(at) - np.int64(first)
            close += 1
            at_rank[rank] += 1
            nearer += 1
            while nearer >= most and bound >= 0:
                bounds[page, 1] = min(number, youngest) if bound == greatest else number
                bounds[page, 0] = bound
                nearer -= at_rank[bound]
                bound -= 1
    return there, close

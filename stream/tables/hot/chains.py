"""The chains of the hot tier, for compiled loops: link anchors into them, and remove anchors again."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from stream.compiled import borrowing, compiled, prefetch
from stream.tables.arrays import U8, U32, U64
from stream.tables.design import PrefixPieces
from stream.tables.hot.slots import Fold, slot_of
from stream.tables.search.packed_pairs import Integer, is_dead
from stream.tables.search.prefixes_compiled import prefix_of

LINKED_AT_ONCE: Final = 16
"""Anchors whose memory is prefetched together."""


class Chains(NamedTuple):
    """The chains of T tables, which `Heads` describes."""

    newest: U32
    """Number + 1 of the newest anchor of each chain; 0 for none. All numbers here are relative to one that
    `HotTier` chooses."""
    links: U32
    """(m, T): number + 1 of the next older anchor, by row of the ring buffer; 0 ends a chain."""
    present: U8
    """Bit slot % 8 of byte slot // 8 tells whether a slot has any anchors."""
    sharing: int
    """Logarithm of the number of slots that share a chain."""
    fold: Fold
    pieces: PrefixPieces
    """`Design.pieces`."""


class Ring(NamedTuple):
    """The anchors in chains, in a ring buffer. Numbers are relative, as in chains."""

    rows: U64
    """(m, W + 1): words and fingerprint of each anchor."""
    floor: int
    """Anchors below it are evicted: chains end there."""
    origin: int
    """Number of the anchor in the first row."""
    shift: int
    """What makes number + 1 the number relative to the first anchor of the index, as in pairs."""


class AnchorsToLink(NamedTuple):
    """n anchors that are added to chains. Numbers are relative, as in chains."""

    rows: U64
    """(n, W + 1): words and fingerprint of each."""
    masks: U64
    """(n,): the tables that each is kept out of; shape (0,) means none."""
    number: int
    """Number of the first one, greater than those of all linked anchors."""
    row: int
    """Row of the first one in the ring buffer; the others follow."""


@borrowing
def ring_row(ring: Ring, after: Integer) -> np.int64:
    """The row of the anchor before number `after`."""
    row, rows = np.int64(after) - np.int64(ring.origin + 1), np.int64(len(ring.rows))
    return row if row < rows else row - rows


@compiled
def link(chains: Chains, tables: tuple[int, int], entering: AnchorsToLink) -> None:
    """Add anchors to their chains in the tables [tables[0], tables[1])."""
    newest, links, present = chains.newest, chains.links, chains.present
    rows, masks, number, row = entering
    first_table, end_table = tables
    slots = np.empty((LINKED_AT_ONCE, end_table), np.uint64)
    shared = np.uint64(chains.sharing)
    for first in range(0, rows.shape[0], LINKED_AT_ONCE):
        some = min(LINKED_AT_ONCE, rows.shape[0] - first)
        for i in range(some):
            for table in range(first_table, end_table):
                prefix = prefix_of(rows, first + i, chains.pieces, table)
                slots[i, table] = slot_of(prefix, chains.fold, table)
                prefetch(newest, slots[i, table] >> shared)
                prefetch(present, slots[i, table] >> np.uint64(3))
        for i in range(some):
            index = first + i
            for table in range(first_table, end_table):
                if masks.size and masks[index] >> np.uint64(table) & np.uint64(1):
                    continue
                slot = slots[i, table]
                links[row + index, table] = newest[slot >> shared]
                newest[slot >> shared] = number + index + 1
                present[slot >> np.uint64(3)] |= np.uint8(1) << np.uint8(slot & np.uint64(7))


@borrowing
def sweep(chains: Chains, floor: int, start: int, end: int) -> None:
    """Clear the presence bits of the slots of the heads [start, end), multiples of 8, whose newest anchor is
    below `floor`."""
    newest, present, sharing = chains.newest, chains.present, chains.sharing
    heads = 8 >> sharing  # whose presence bits fill a byte
    ones = np.uint8((1 << (1 << sharing)) - 1)
    for byte in range(start // heads, end // heads):
        if present[byte]:
            kept = np.uint8(0)
            for head in range(heads):
                if newest[byte * heads + head] > floor:
                    kept |= ones << np.uint8(head << sharing)
            present[byte] &= kept


@borrowing
def unlink(heads: U64, chains: Chains, ring: Ring, dead: U8) -> None:
    """Remove dead anchors from the chains of these heads, which must be distinct."""
    newest, links = chains.newest, chains.links
    head_bits = np.uint64(chains.fold.bits - chains.sharing)
    for i in range(len(heads)):
        head, table = heads[i], np.int64(heads[i] >> head_bits)
        before, current = np.int64(-1), np.int64(newest[head])
        while current > ring.floor:
            at = ring_row(ring, current)
            following = links[at, table]
            if is_dead(current + ring.shift, dead):
                if before < 0:
                    newest[head] = following
                else:
                    links[before, table] = following
            else:
                before = at
            current = np.int64(following)

"""The compiled loops of the hot tier: link anchors into chains, and follow the chains of probed slots.

The cost of a probe is a cache miss in a large array. Eight slots share a chain, and a presence bit per slot
is checked first, so few probes follow a chain. Memory is prefetched for several rows before it is read, so
that many cache misses overlap.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from stream.compiled import compiled, popcount, prefetch
from stream.tables.arrays import I64, U8, U32, U64
from stream.tables.design import TABLE_BITS, Pieces
from stream.tables.found_pairs import FIRST_PAIRS, add_pair, count_live, is_dead, pack_pair, place_among
from stream.tables.prefixes_compiled import PROBES_AT_ONCE, prefix_of
from stream.tables.probing import Nearest
from stream.tables.queries import Criteria, Queries
from stream.tables.slots import Fold, slot_of

FINGERPRINT_BITS: Final = 64
LINKED_AT_ONCE: Final = 16
"""Anchors whose memory is prefetched together."""
LONG: Final = 64
"""Steps along a chain after which the rest of it is copied to contiguous memory. Many rows of spam follow the
same chain, and a step along a chain takes ten times as long as one in contiguous memory."""
FEW: Final = 8
"""The same if only the nearest anchors are wanted, which are selected from a copy."""
MANY: Final = 1 << 32
"""More than the number of anchors: no limit."""
COPIES: Final = 256
"""Entries of the direct-mapped cache of copied chains."""
MORTAL: Final = np.uint64(40)
"""Lowest bit of the field in a copied anchor's number that holds its index in `Nearest.mortal` plus 1; 0 if
it is not mortal."""
NUMBER: Final = (np.uint64(1) << MORTAL) - np.uint64(1)
COPIED: Final = 1 << 18
"""Anchors copied, 6 MiB, before all copies are discarded."""


class Chains(NamedTuple):
    """The chains of T tables, which `Heads` describes."""

    newest: U32
    links: U32
    """(m, T)"""
    present: U8
    sharing: int
    """Logarithm of the number of slots that share a chain."""
    fold: Fold
    flips: U32
    """`Slots.flips`."""
    prefix_masks: U64
    """`Design.prefix_mask`."""


class Ring(NamedTuple):
    """The anchors in chains: a ring buffer, with the number `origin` in its first row."""

    rows: U64
    """(m, 2): word and fingerprint of each anchor."""
    floor: int
    """Anchors below it are evicted: chains end there."""
    origin: int


class Entering(NamedTuple):
    """n anchors that are added to chains."""

    rows: U64
    """(n, 2): word and fingerprint of each."""
    masks: U64
    """(n,): the tables that each is kept out of; shape (0,) means none."""
    number: int
    """Number of the first, newer than all before."""
    row: int
    """Its row in the ring buffer; the others follow."""


@compiled
def link(chains: Chains, pieces: Pieces, tables: tuple[int, int], entering: Entering) -> None:
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
                prefix = prefix_of(rows[first + i, 0], pieces, table)
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


@compiled
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


@compiled
def unlink(heads: U64, chains: Chains, ring: Ring, dead: U8) -> None:
    """Remove dead anchors from the chains of these heads, which must be distinct."""
    newest, links, (_, floor, origin) = chains.newest, chains.links, ring
    head_bits = np.uint64(chains.fold.bits - chains.sharing)
    rows = len(links)
    for i in range(len(heads)):
        head, table = heads[i], np.int64(heads[i] >> head_bits)
        before, current = np.int64(-1), np.int64(newest[head])
        while current > floor:
            number, at = current - 1, current - origin - 1
            if at >= rows:
                at -= rows
            following = links[at, table]
            if is_dead(number, dead):
                if before < 0:
                    newest[head] = following
                else:
                    links[before, table] = following
            else:
                before = at
            current = np.int64(following)


@compiled
def follow(chains: Chains, ring: Ring, queries: Queries, criteria: Criteria, nearest: Nearest) -> U64:
    """Pairs of a row and an anchor in a bucket that it probes, packed as in `PairCollector`, with
    repetitions. Counts the live anchors in exact buckets.

    Of a chain with more than `nearest.most` near anchors, one may be left out if as many live ones are
    nearer, or as near and older.
    """
    newest, links, present, sharing, fold, flips, prefix_masks = chains
    (stored, floor, origin), (distance, dead, enough), (most, mortal, dies) = ring, criteria, nearest
    words, fingerprints, keys, bits, _, (parents, added), sizes = queries
    tables, probes, rows = keys.shape[1], len(parents), len(stored)
    shared, last_bit = np.uint32(sharing), np.uint8(flips.shape[0] - 1)
    at_once = max(1, PROBES_AT_ONCE // (tables * probes))
    room = at_once * tables * probes
    single, probed = np.empty(bits.shape[0], np.uint32), np.empty(probes, np.uint32)
    slots, current, following = np.empty((3, room), np.uint32)
    kept, row_of, table_of, probe_of, at_row = np.empty((5, room), np.int64)
    apart = np.empty(room, np.uint64)
    stored_flat, links_flat = stored.ravel(), links.ravel()
    pairs, found = np.empty(FIRST_PAIRS, np.uint64), 0
    copies, copied, copied_to = np.zeros((COPIES, 4), np.int64), np.empty((3, 0), np.uint64), 0
    long = LONG if most >= MANY else FEW
    near = np.empty(0, np.int64)
    reach, reach_row = distance, -1
    for first in range(0, len(fingerprints), at_once):
        if found >= enough:
            break
        filled = 0
        for row in range(first, min(len(fingerprints), first + at_once)):
            for table in range(tables):
                for flip in range(bits.shape[0]):
                    single[flip] = flips[bits[flip, row, table], table]
                probed[0] = slot_of(keys[row, table] >> np.uint64(TABLE_BITS), fold, table)
                for probe in range(1, probes):
                    probed[probe] = probed[parents[probe]] ^ single[added[probe]]
                for probe in range(probes):
                    slots[filled] = probed[probe]
                    prefetch(present, np.uint64(probed[probe] >> np.uint32(3)))
                    filled += 1
        there = np.int64(0)
        for i in range(filled):
            slot = slots[i]
            kept[there] = i
            there += present[slot >> np.uint32(3)] >> np.uint8(slot & np.uint32(7)) & np.uint8(1)
        for i in range(there):
            prefetch(newest, np.uint64(slots[kept[i]] >> shared))
        held = np.int64(0)
        for i in range(there):
            pair = kept[i] // probes
            current[held], probe_of[held] = newest[slots[kept[i]] >> shared], kept[i] - pair * probes
            row_of[held], table_of[held] = first + pair // tables, pair % tables
            held += current[held] > floor
        steps = 0
        while held and steps < long:
            steps += 1
            for i in range(held):
                at = np.int64(current[i]) - np.int64(origin + 1)
                if at >= rows:
                    at -= np.int64(rows)
                at_row[i] = at
                prefetch(stored_flat, np.uint64(2 * at))
                prefetch(links_flat, np.uint64(at * tables + table_of[i]))
            for i in range(held):
                apart[i] = stored[at_row[i], 0] ^ words[row_of[i]]
                following[i] = links[at_row[i], table_of[i]]
            left = np.int64(0)
            for i in range(held):
                row, table, probe = row_of[i], table_of[i], probe_of[i]
                number = np.int64(current[i]) - 1
                in_prefix = apart[i] & prefix_masks[table]
                if probe == 0 and in_prefix == np.uint64(0):
                    count_live(sizes, row * tables + table, number, dead)
                step = probe
                while step:
                    bit = bits[added[step], row, table]
                    if bit < last_bit and prefix_masks[table] >> np.uint64(bit) & np.uint64(1):
                        in_prefix ^= np.uint64(1) << np.uint64(bit)
                    step = parents[step]
                if in_prefix == np.uint64(0):
                    apart_by = popcount(stored[at_row[i], 1] ^ fingerprints[row])
                    if apart_by <= distance:
                        pairs = add_pair(pairs, found, row, number, apart_by)
                        found += 1
                current[left], row_of[left], table_of[left], probe_of[left] = following[i], row, table, probe
                left += following[i] > floor
            held = left
        for i in range(held):
            row, table, probe = row_of[i], table_of[i], probe_of[i]
            start = np.int64(current[i])
            copy = copies[(start * tables + table) % COPIES]  # start of the chain, table, copied from, to
            if copy[0] != start or copy[1] != table:
                if copied_to > COPIED:
                    copies[:, 0], copied_to = 0, 0
                copy[0], copy[1], copy[2] = start, table, copied_to
                while start > floor:
                    number, at = start - 1, start - np.int64(origin + 1)
                    if at >= rows:
                        at -= np.int64(rows)
                    if copied_to == copied.shape[1]:
                        grown = np.empty((3, 2 * copied_to + FIRST_PAIRS), np.uint64)
                        grown[:, :copied_to] = copied
                        copied, near = grown, np.empty(grown.shape[1], np.int64)
                    if not is_dead(number, dead):
                        copied[0, copied_to] = stored[at, 0]
                        copied[1, copied_to] = stored[at, 1]
                        which = np.uint64(place_among(number, mortal) + 1)
                        copied[2, copied_to] = np.uint64(number) | which << MORTAL
                        copied_to += 1
                    start = np.int64(links[at, table])
                copy[3] = copied_to
            if row != reach_row:
                reach, reach_row = distance, row
            wanted, step = words[row], probe
            while step:
                bit = bits[added[step], row, table]
                if bit < last_bit:
                    wanted ^= np.uint64(1) << np.uint64(bit)
                step = parents[step]
            first_copied, end_copied = copy[2], copy[3]
            if end_copied - first_copied > most:
                same, close, reach = _oldest_near(
                    copied[:, first_copied:end_copied],
                    wanted,
                    fingerprints[row],
                    prefix_masks[table],
                    reach,
                    near,
                    most,
                    dies,
                    row,
                )
            else:
                same, close = _copied_near(
                    copied[0, first_copied:end_copied],
                    copied[1, first_copied:end_copied],
                    wanted,
                    fingerprints[row],
                    prefix_masks[table],
                    reach,
                    near,
                )
            if probe == 0 and sizes.size:
                sizes[row * tables + table] += same
            if found + close > len(pairs):
                more = np.empty(2 * (found + close), np.uint64)
                more[:found] = pairs[:found]
                pairs = more
            for place in near[:close]:
                apart_by = popcount(copied[1, copy[2] + place] ^ fingerprints[row])
                pairs[found] = pack_pair(row, copied[2, copy[2] + place] & NUMBER, apart_by)
                found += 1
    return pairs[:found]


@compiled
def _copied_near(
    words: U64, prints: U64, word: np.uint64, print_: np.uint64, mask: np.uint64, distance: int, near: I64
) -> tuple[int, int]:
    """Returns the number of words equal to `word` under the mask, and how many of these have fingerprints
    within the distance. Writes the indexes of the latter to `near`."""
    there = close = 0
    for at in range(len(words)):  # branch-free, so that it is vectorised
        same = (words[at] ^ word) & mask == np.uint64(0)
        near[close] = at
        there += same
        close += same & (popcount(prints[at] ^ print_) <= distance)
    return there, close


@compiled
def _oldest_near(
    copied: U64,
    word: np.uint64,
    print_: np.uint64,
    mask: np.uint64,
    reach: int,
    near: I64,
    most: int,
    dies: I64,
    row: int,
) -> tuple[int, int, int]:
    """Like `_copied_near` for copied anchors, which are ordered newest first, but limited to the nearest.

    Of the anchors within `reach`, writes those that may be among the `most` nearest (of equally near ones the
    oldest) to `near`. Also returns the greatest distance at which further anchors may be among these.
    """
    at_distance = np.zeros(FINGERPRINT_BITS + 1, np.int64)
    there = close = nearer = 0
    bound = reach
    for at in range(copied.shape[1] - 1, -1, -1):
        if (copied[0, at] ^ word) & mask:
            continue
        there += 1
        apart = popcount(copied[1, at] ^ print_)
        if apart > bound:
            continue
        which = copied[2, at] >> MORTAL
        if which and dies[which - np.uint64(1)] <= row:
            continue
        near[close] = at
        close += 1
        at_distance[apart] += 1
        nearer += 1
        while nearer >= most and bound >= 0:
            reach = bound
            nearer -= at_distance[bound]
            bound -= 1
    return there, close, reach

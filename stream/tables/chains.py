"""The hot tier's inner loops: linking anchors into chains, and following the chains that probes meet.

A probe reads one word of a large array, at random, so what it costs is waiting for memory. A bit a slot says
first whether anything is there, in a thirty-second of the memory, which cuts the time of a probe to a third.
All that is read for a row is read together, not each when the one before it has been looked at: the processor
then waits for many at once.
"""

from __future__ import annotations

import numpy as np

from stream.compiled import compiled, popcount
from stream.tables.candidates import I64, U8
from stream.tables.design import U64
from stream.tables.slots import U32

_FIRST_PAIRS = 1 << 12


@compiled
def link(
    slots: U32,
    first_table: int,
    end_table: int,
    number: int,
    row: int,
    masks: U64,
    newest: U32,
    links: U32,
    present: U8,
) -> None:
    """Put n anchors, numbered from `number` and newer than all before, in rows from `row`, into their chains
    of the tables [first_table, end_table).

    `slots` has shape (n, T); `masks` are the tables each one stays out of, shape (n,), or (0,) for none.
    """
    for index in range(slots.shape[0]):
        for table in range(first_table, end_table):
            if masks.size and masks[index] >> np.uint64(table) & np.uint64(1):
                continue
            slot = slots[index, table]
            links[row + index, table] = newest[slot]
            newest[slot] = number + index + 1
            present[slot >> np.uint32(3)] |= np.uint8(1) << np.uint8(slot & np.uint32(7))


@compiled
def sweep(newest: U32, present: U8, floor: int, start: int, end: int) -> None:
    """Take away the presence of slots [start, end), multiples of 8, that hold no anchor from `floor` on."""
    for byte in range(start // 8, end // 8):
        if present[byte]:
            kept = np.uint8(0)
            for bit in range(8):
                if newest[byte * 8 + bit] > floor:
                    kept |= np.uint8(1) << np.uint8(bit)
            present[byte] = kept


@compiled
def follow(
    words: U64,
    fingerprints: U64,
    exact: U32,
    bits: U8,
    flips: U32,
    parents: I64,
    added: I64,
    newest: U32,
    links: U32,
    present: U8,
    stored: U64,
    floor: int,
    origin: int,
    distance: int,
    prefix_masks: U64,
    dead: U8,
    sizes: I64,
) -> U64:
    """Pairs of a row and an anchor of a chain that it probes, packed as `Found` has them, some repeatedly.

    `words` (n,) are what the tables are of, `fingerprints` (n,) what distances are between; `stored` (m, 2)
    has both of each anchor. `exact` (n, T) are the slots of the exact keys, `bits` (F, n, T) the bits that
    may be flipped, `flips` (width + 1, T) what a bit flips in a slot. Probe p flips what probe `parents[p]`
    flips and `bits[added[p]]`; probe 0 is exact. `sizes` (n * T) grows by the live anchors of each exact
    bucket; of shape (0,) it does not.
    """
    tables, probes, rows = exact.shape[1], len(parents), len(stored)
    last_bit = np.uint8(flips.shape[0] - 1)
    single, probed = np.empty(bits.shape[0], np.uint32), np.empty(probes, np.uint32)
    slots = np.empty(tables * probes, np.uint32)
    current = np.empty(tables * probes, np.uint32)
    following = np.empty(tables * probes, np.uint32)
    table_of = np.empty(tables * probes, np.int64)
    probe_of = np.empty(tables * probes, np.int64)
    at_row = np.empty(tables * probes, np.int64)
    apart = np.empty(tables * probes, np.uint64)
    pairs, found = np.empty(_FIRST_PAIRS, np.uint64), 0
    for row in range(len(fingerprints)):
        word, fingerprint = words[row], fingerprints[row]
        filled = np.int64(0)
        for table in range(tables):
            for flip in range(bits.shape[0]):
                single[flip] = flips[bits[flip, row, table], table]
            probed[0] = exact[row, table]
            for probe in range(1, probes):
                probed[probe] = probed[parents[probe]] ^ single[added[probe]]
            for probe in range(probes):
                slot = probed[probe]
                slots[filled], table_of[filled], probe_of[filled] = slot, table, probe
                byte = present[slot >> np.uint32(3)]
                filled += np.int64(byte >> np.uint8(slot & np.uint32(7)) & np.uint8(1))
        for i in range(filled):
            following[i] = newest[slots[i]]
        held = 0
        for i in range(filled):
            current[held], table_of[held], probe_of[held] = following[i], table_of[i], probe_of[i]
            held += following[i] > floor
        while held:
            for i in range(held):
                at = np.int64(current[i]) - np.int64(origin + 1)
                if at >= rows:
                    at -= np.int64(rows)
                apart[i] = stored[at, 0] ^ word
                at_row[i] = at
            for i in range(held):
                following[i] = links[at_row[i], table_of[i]]
            left = 0
            for i in range(held):
                table, probe = table_of[i], probe_of[i]
                number = np.int64(current[i]) - 1
                in_prefix = apart[i] & prefix_masks[table]
                if probe == 0 and sizes.size and in_prefix == np.uint64(0):
                    byte = number >> 3
                    if byte >= len(dead) or not dead[byte] >> np.uint8(number & 7) & np.uint8(1):
                        sizes[row * tables + table] += 1
                step = probe
                while step:
                    bit = bits[added[step], row, table]
                    if bit < last_bit and prefix_masks[table] >> np.uint64(bit) & np.uint64(1):
                        in_prefix ^= np.uint64(1) << np.uint64(bit)
                    step = parents[step]
                if in_prefix == np.uint64(0):
                    apart_by = popcount(stored[at_row[i], 1] ^ fingerprint)
                    if apart_by <= distance:
                        if found == len(pairs):
                            grown = np.empty(2 * found, np.uint64)
                            grown[:found] = pairs
                            pairs = grown
                        pairs[found] = (
                            np.uint64(row) << np.uint64(40)
                            | np.uint64(number) << np.uint64(8)
                            | np.uint64(apart_by)
                        )
                        found += 1
                current[left], table_of[left], probe_of[left] = following[i], table, probe
                left += following[i] > floor
            held = left
    return pairs[:found]

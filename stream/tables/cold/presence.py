"""Presence bitmaps: tell in RAM which buckets of a run are empty, so that RocksDB is not read for them."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from stream.compiled import compiled
from stream.tables.arrays import I64, U8, U64
from stream.tables.cold.runs import Run
from stream.tables.design import TABLE_BITS, Design, PrefixPieces
from stream.tables.search.prefixes_compiled import prefix_of
from stream.tables.search.queries import Queries

_ALL_ENTER: Final = np.zeros(0, np.uint64)
LEAST_BITS: Final = 3
"""Least logarithm of a table's slots, so that these fill whole bytes."""
_FIRST_ROOM: Final = 1 << 12


class GroupsToRead(NamedTuple):
    """The groups of a run to read, by table, and the probes that need them.

    Table t has the `groups` [group_edges[t], group_edges[t + 1]), each as `Run.key` | group, and the `wanted`
    [2 * wanted_edges[t], 2 * wanted_edges[t + 1]). The latter are two numbers per probe: (index among these
    groups << 32 | low bits of the prefix), and (row * 2, plus 1 if the probe is exact).
    """

    groups: U64
    group_edges: I64
    wanted: U64
    wanted_edges: I64


class Presence:
    """The presence bitmap of one run, with 2**bits slots per table. A slot is the lowest bits of a prefix.

    `mark` and `halve` are called by one thread. Others may call `groups_to_read` at the same time.
    """

    def __init__(self, design: Design, run: Run, bits: int) -> None:
        self._design = design
        self._key = np.uint64(run.key)
        self._low_bits = run.low_bits(design).astype(np.uint64)
        self._slots = bits, np.zeros(design.tables << bits >> 3, np.uint8)
        self.due_bits = bits
        """The number of bits to which `halve` reduces the slots."""

    def mark(self, words: U64, masks: U64 | None) -> None:
        """Mark the buckets of anchors by their keys (n, W), which may have further columns, except in the
        tables of `masks` (n,)."""
        _mark(words.copy(), _ALL_ENTER if masks is None else masks, self._design.pieces, *self._slots)

    def halve(self) -> None:
        """Halve the number of slots, merging pairs of them, until it is 2**due_bits."""
        bits, present = self._slots
        while bits > self.due_bits:
            halves = present.reshape(self._design.tables, 2, -1)
            bits, present = bits - 1, np.bitwise_or(halves[:, 0], halves[:, 1]).ravel()
            self._slots = bits, present

    def groups_to_read(self, queries: Queries) -> GroupsToRead:
        """The groups of the run to read for the probes."""
        return _groups_to_read(queries, self._low_bits, self._key, *self._slots)


@compiled
def _slot(prefix: np.uint64, bits: int, table: int) -> np.uint64:
    return np.uint64(table) << np.uint64(bits) | prefix & ((np.uint64(1) << np.uint64(bits)) - np.uint64(1))


@compiled
def _mark(words: U64, masks: U64, pieces: PrefixPieces, bits: int, present: U8) -> None:
    """Mark anchors table by table, as the part of `present` of one table stays in the cache."""
    for table in range(pieces.shifts.shape[0]):
        for row in range(words.shape[0]):
            if masks.size and masks[row] >> np.uint64(table) & np.uint64(1):
                continue
            slot = _slot(prefix_of(words, row, pieces, table), bits, table)
            present[slot >> np.uint64(3)] |= np.uint8(1) << np.uint8(slot & np.uint64(7))


@compiled
def _grow(values: U64) -> U64:
    larger = np.empty(2 * len(values), np.uint64)
    larger[: len(values)] = values
    return larger


@compiled
def _groups_to_read(queries: Queries, low_bits: U64, run: np.uint64, bits: int, present: U8) -> GroupsToRead:
    keys, (parents, added) = queries.keys, queries.tree
    probes, tables = len(parents), keys.shape[1]
    groups, grouped = np.empty(_FIRST_ROOM, np.uint64), 0
    wanted, size = np.empty(_FIRST_ROOM, np.uint64), 0
    group_edges, wanted_edges = np.zeros(tables + 1, np.int64), np.zeros(tables + 1, np.int64)
    probed = np.empty(probes, np.uint64)
    for table in range(tables):
        low = low_bits[table]
        for row in range(keys.shape[0]):
            probed[0] = keys[row, table] >> np.uint64(TABLE_BITS)
            groups_before = grouped
            for probe in range(probes):
                if probe:
                    bit = queries.bits[added[probe], row, table]
                    flip = queries.key_flip[bit, table] >> np.uint64(TABLE_BITS)
                    probed[probe] = probed[parents[probe]] ^ flip
                    if flip == np.uint64(0):  # no such bit in this prefix: the probe equals its parent
                        continue
                slot = _slot(probed[probe], bits, table)
                if not present[slot >> np.uint64(3)] >> np.uint8(slot & np.uint64(7)) & np.uint8(1):
                    continue
                group = run | probed[probe] >> low
                at = groups_before
                while at < grouped and groups[at] != group:
                    at += 1
                if at == grouped:
                    if grouped == len(groups):
                        groups = _grow(groups)
                    groups[grouped] = group
                    grouped += 1
                if size + 2 > len(wanted):
                    wanted = _grow(wanted)
                wanted[size] = np.uint64(at - group_edges[table]) << np.uint64(32) | (
                    probed[probe] & ((np.uint64(1) << low) - np.uint64(1))
                )
                wanted[size + 1] = np.uint64(2 * row + (probe == 0))
                size += 2
        group_edges[table + 1], wanted_edges[table + 1] = grouped, size >> 1
    return GroupsToRead(groups[:grouped], group_edges, wanted[:size], wanted_edges)

"""Presence filters: tell in RAM which buckets of a run are empty, so that RocksDB is not read for them.

Each table of a run has a blocked Bloom filter (Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient
Bloom Filters", WEA 2007): a bucket sets a few bits of one block, which is a cache line. A filter is as large
as its table has entries, so tables that no anchor entered take nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled, inlined, prefetch
from stream.tables.arrays import I64, U64
from stream.tables.cold.runs import Run
from stream.tables.design import TABLE_BITS, Design
from stream.tables.search.queries import Queries

BLOCK_BITS: Final = 512
BLOCK_BYTES: Final = BLOCK_BITS // 8
BLOCK_WORDS: Final = BLOCK_BITS // 64
BITS_SET: Final = 4
"""Bits that a bucket sets. That is best at 6 bits an entry; the best number at 3 and 8 saves a fifth of the
false positives."""
LEAST_BITS: Final = 1 / 4
"""A filter is not made smaller than that many bits an entry, with which it reports everything as present."""
MOST_FOLDS: Final = 6
"""How often a filter can be folded: its blocks are a multiple of 2**MOST_FOLDS, unless it has few."""
_AHEAD: Final = 256
"""Blocks that are prefetched together."""
_FIRST_ROOM: Final = 1 << 10
_NOTHING: Final[U64] = np.zeros((0, BLOCK_WORDS), np.uint64)
"""The filter of a table in which nothing is searched."""


def blocks_of(entries: I64, bits: float) -> I64:
    """Blocks of filters with that many bits an entry, at least one for each table with entries."""
    blocks = np.ceil(entries * (bits / BLOCK_BITS)).astype(np.int64)
    unit = np.minimum(1 << MOST_FOLDS, 1 << np.ceil(np.log2(np.maximum(blocks / 8, 1))).astype(np.int64))
    rounded: I64 = -(-blocks // unit) * unit
    return rounded


def false_positives(entries: I64, blocks: I64) -> NDArray[np.float64]:
    """The probability that a filter reports an empty bucket as present."""
    load = BITS_SET * entries / np.maximum(blocks * BLOCK_BITS, 1)
    return np.where(entries > 0, (1 - np.exp(-load)) ** BITS_SET, 0.0)


class GroupsToRead(NamedTuple):
    """The groups of a run to read, one for each probe of a bucket that is perhaps there, by table."""

    groups: U64
    """(m,): `Run.key` | group."""
    wanted: U64
    """(m,): row << 32 | low bits of the prefix."""
    edges: I64
    """Table t has the probes [edges[t], edges[t + 1])."""


class Presence:
    """The presence filters of one run. `entries` (T,) are the anchors that entered each table.

    `mark` and `fold` are called by one thread. Others may call `groups_to_read` at the same time.
    """

    def __init__(self, design: Design, run: Run, entries: I64, blocks: I64) -> None:
        self.run: Final = run
        self.entries: Final = entries
        self.due_blocks: Final = blocks
        """(T,): the number of blocks to which `fold` reduces each filter."""
        self._design = design
        self._key = np.uint64(run.key)
        self._low_bits = run.low_bits(design).astype(np.uint64)
        self._filters = [_NOTHING] * design.tables

    def begin(self, table: int) -> None:
        """Make the filter of a table, which is empty until `mark`."""
        if self.due_blocks[table]:
            self._filters[table] = _aligned(int(self.due_blocks[table]))

    def drop(self, table: int) -> None:
        """Forget the filter of a table, in which nothing is searched any more."""
        self._filters[table], self.due_blocks[table] = _NOTHING, 0

    def mark(self, words: U64, masks: U64 | None, tables: range | None = None) -> None:
        """Mark the buckets of anchors by their keys (n, W), which may have further columns, except in the
        tables of `masks` (n,). Only tables with a filter are marked, and of these only `tables`, if given."""
        for table in range(self._design.tables) if tables is None else tables:
            present = self._filters[table]
            if not len(present):
                continue
            prefixes = self._design.prefixes(words, table)
            if masks is not None:
                prefixes = prefixes[masks >> np.uint64(table) & np.uint64(1) == 0]
            _mark(prefixes, present)

    def cheapest_fold(self) -> tuple[float, int]:
        """The filter that is best halved: false positives that this adds for each byte that it saves, inf if
        none can be halved, and the table."""
        entries, blocks = self.entries, self.due_blocks
        more = false_positives(entries, blocks // 2) - false_positives(entries, blocks)
        can = (blocks % 2 == 0) & (blocks > 0) & (blocks * BLOCK_BITS >= 2 * LEAST_BITS * entries)
        costs = np.where(can, 2 * more / np.maximum(blocks * BLOCK_BYTES, 1), np.inf)
        table = int(costs.argmin())
        return float(costs[table]), table

    def fold(self) -> None:
        """Reduce the filters to their due blocks, merging neighbouring blocks."""
        for table, present in enumerate(self._filters):
            while len(present) > max(1, self.due_blocks[table]):
                folded = _aligned(len(present) // 2)
                np.bitwise_or(present[::2], present[1::2], out=folded)
                self._filters[table] = present = folded

    def groups_to_read(self, queries: Queries, tables: int) -> GroupsToRead:
        """The groups of the run to read for the probes in the first `tables`."""
        return _groups_to_read(queries, tuple(self._filters), tables, self._low_bits, self._key)


def _aligned(blocks: int) -> U64:
    """Zeroed blocks (n, BLOCK_WORDS) that begin at cache lines. The system allocates them at first use."""
    room = np.zeros((blocks + 1) * BLOCK_WORDS, np.uint64)
    start = -room.ctypes.data % BLOCK_BYTES // 8
    return room[start : start + blocks * BLOCK_WORDS].reshape(blocks, BLOCK_WORDS)


@inlined
def _hash(prefix: np.uint64) -> np.uint64:
    mixed = (prefix ^ prefix >> np.uint64(32)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ mixed >> np.uint64(29)) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ mixed >> np.uint64(32)


@inlined
def _block(hashed: np.uint64, blocks: np.uint64) -> np.uint64:
    """The block of a bucket among any number of blocks. Half of that is its block among half as many."""
    return (hashed >> np.uint64(32)) * blocks >> np.uint64(32)


@inlined
def _bits(hashed: np.uint64) -> np.uint64:
    """Bits of the hash beside those that select the block; 9 of them for each bit that is set."""
    return hashed * np.uint64(0x94D049BB133111EB) >> np.uint64(64 - 9 * BITS_SET)


@compiled
def _mark(prefixes: U64, present: U64) -> None:
    blocks = np.uint64(present.shape[0])
    for row in range(len(prefixes)):
        hashed = _hash(prefixes[row])
        block, bits = _block(hashed, blocks), _bits(hashed)
        for _ in range(BITS_SET):
            word = bits >> np.uint64(6) & np.uint64(BLOCK_WORDS - 1)
            present[block, word] |= np.uint64(1) << (bits & np.uint64(63))
            bits >>= np.uint64(9)


@compiled
def _grow(values: U64) -> U64:
    larger = np.empty(2 * len(values), np.uint64)
    larger[: len(values)] = values
    return larger


@compiled
def _groups_to_read(
    queries: Queries, filters: tuple[U64, ...], tables: int, low_bits: U64, run: np.uint64
) -> GroupsToRead:
    keys, rows = queries.keys, queries.keys.shape[0]
    groups, wanted, size = np.empty(_FIRST_ROOM, np.uint64), np.empty(_FIRST_ROOM, np.uint64), 0
    edges = np.zeros(keys.shape[1] + 1, np.int64)
    hashes = np.empty(_AHEAD, np.uint64)
    for table in range(keys.shape[1]):
        edges[table + 1] = size
        if table >= tables or not len(filters[table]):
            continue
        present, low = filters[table], low_bits[table]
        blocks, flat = np.uint64(present.shape[0]), present.ravel()
        for first in range(0, rows, _AHEAD):
            end = min(first + _AHEAD, rows)
            for row in range(first, end):
                hashes[row - first] = _hash(keys[row, table] >> np.uint64(TABLE_BITS))
                prefetch(flat, _block(hashes[row - first], blocks) * np.uint64(BLOCK_WORDS))
            for row in range(first, end):
                prefix, hashed = keys[row, table] >> np.uint64(TABLE_BITS), hashes[row - first]
                block, bits, is_set = _block(hashed, blocks), _bits(hashed), np.uint64(1)
                for _ in range(BITS_SET):
                    word = bits >> np.uint64(6) & np.uint64(BLOCK_WORDS - 1)
                    is_set &= present[block, word] >> (bits & np.uint64(63))
                    bits >>= np.uint64(9)
                if is_set == np.uint64(0):
                    continue
                if size == len(groups):
                    groups, wanted = _grow(groups), _grow(wanted)
                groups[size] = run | prefix >> low
                below = prefix & ((np.uint64(1) << low) - np.uint64(1))
                wanted[size] = np.uint64(row) << np.uint64(32) | below
                size += 1
        edges[table + 1] = size
    return GroupsToRead(groups[:size], wanted[:size], edges)

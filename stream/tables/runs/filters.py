"""Filters: tell in RAM which buckets a run has, so that RocksDB is not read for the others.

A run has one blocked Bloom filter for all tables (Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient
Bloom Filters", WEA 2007): a bucket sets a few bits of one block, which is a cache line. It is made with the
run and stored with it. In RAM it is halved as often as memory demands, by merging neighbouring blocks.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from stream.compiled import compiled, inlined, prefetch
from stream.tables.arrays import U64
from stream.tables.design import TABLE_BITS
from stream.tables.hashing import mixed
from stream.tables.runs.run import TABLE_PLACE
from stream.tables.search.packed_pairs import grown

BLOCK_BITS: Final = 512
BLOCK_BYTES: Final = BLOCK_BITS // 8
BLOCK_WORDS: Final = BLOCK_BITS // 64
BITS_SET: Final = 4
"""Bits that a bucket sets. That is best at 6 bits an entry; the best number at 3 and 8 saves a fifth of the
false positives."""
MOST_BITS: Final = 16
"""Bits of a filter for each entry of its run, as stored. One probe in 400 is then a false positive."""
MOST_FOLDS: Final = 6
"""How often a filter may be halved: its blocks are a multiple of 2**MOST_FOLDS, unless it has few. After that
it has a quarter of a bit an entry, and reports everything as present."""
PIECE_BLOCKS: Final = 1 << 14
"""Blocks of a stored piece of a filter, 1 MiB: a multiple of 2**MOST_FOLDS."""
_AHEAD: Final = 256
"""Blocks that are prefetched together."""
_FIRST_ROOM: Final = 1 << 10


def blocks_of(entries: int, memory: int) -> int:
    """Blocks of the filter of a run with so many entries, which takes at most `memory` bytes."""
    blocks = max(1, min(-(-entries * MOST_BITS // BLOCK_BITS), memory // BLOCK_BYTES))
    unit = min(1 << MOST_FOLDS, 1 << max(0, (blocks // 8).bit_length() - 1))
    return blocks // unit * unit


def empty_filter(blocks: int) -> U64:
    """Zeroed blocks (n, BLOCK_WORDS) that begin at cache lines. The system allocates them at first use."""
    room = np.zeros((blocks + 1) * BLOCK_WORDS, np.uint64)
    start = -room.ctypes.data % BLOCK_BYTES // 8
    return room[start : start + blocks * BLOCK_WORDS].reshape(blocks, BLOCK_WORDS)


def false_positives(entries: int, blocks: int) -> float:
    """The probability that a filter reports an empty bucket as present."""
    return float((1 - np.exp(-BITS_SET * entries / (blocks * BLOCK_BITS))) ** BITS_SET)


@lru_cache(maxsize=2)  # it is asked for at every batch, and runs seldom change
def folds_within(sizes: tuple[tuple[int, int], ...], memory: int) -> list[int]:
    """How often to halve each of some filters, by their entries and stored blocks, so that they take at most
    `memory` bytes: those are halved first whose bytes prevent the fewest reads."""
    folds = [0] * len(sizes)
    while sum(blocks >> fold for (_, blocks), fold in zip(sizes, folds, strict=True)) * BLOCK_BYTES > memory:
        costs = []
        for place, ((entries, blocks), fold) in enumerate(zip(sizes, folds, strict=True)):
            now = blocks >> fold
            if now % 2 == 0 and fold < MOST_FOLDS:
                more = false_positives(entries, now // 2) - false_positives(entries, now)
                costs.append((more / now, place))
        if not costs:
            break
        folds[min(costs)[1]] += 1
    return folds


@compiled
def folded(blocks: U64) -> U64:
    """Half as many blocks: neighbouring ones are merged."""
    half = np.empty((blocks.shape[0] // 2, blocks.shape[1]), np.uint64)
    for block in range(half.shape[0]):
        for word in range(half.shape[1]):
            half[block, word] = blocks[2 * block, word] | blocks[2 * block + 1, word]
    return half


@inlined
def _block(hashed: np.uint64, blocks: np.uint64) -> np.uint64:
    """The block of a bucket among any number of blocks. Half of that is its block among half as many."""
    return (hashed >> np.uint64(32)) * blocks >> np.uint64(32)


@inlined
def _bits(hashed: np.uint64) -> np.uint64:
    """Bits of the hash beside those that select the block; 9 of them for each bit that is set."""
    return hashed * np.uint64(0x94D0_49BB_1331_11EB) >> np.uint64(64 - 9 * BITS_SET)


@compiled
def mark(prefixes: U64, table: int, present: U64) -> None:
    """Mark the buckets of a table with these prefixes (n,) in a filter."""
    blocks = np.uint64(present.shape[0])
    for row in range(len(prefixes)):
        hashed = mixed(prefixes[row] << np.uint64(TABLE_BITS) | np.uint64(table))
        block, bits = _block(hashed, blocks), _bits(hashed)
        for _ in range(BITS_SET):
            word = bits >> np.uint64(6) & np.uint64(BLOCK_WORDS - 1)
            present[block, word] |= np.uint64(1) << (bits & np.uint64(63))
            bits >>= np.uint64(9)


class GroupsToRead(NamedTuple):
    """The groups of a run to read, one for each probe of a bucket that is perhaps there."""

    groups: U64
    """(m,): table << TABLE_PLACE | group."""
    probes: U64
    """(m,): query * T + place of the key."""


@compiled
def groups_to_read(keys: U64, present: U64, low_bits: U64) -> GroupsToRead:
    """The groups to read of a run with a filter, for the buckets with these keys (n, T). `low_bits` are those
    of each table."""
    groups, probes, size = np.empty(_FIRST_ROOM, np.uint64), np.empty(_FIRST_ROOM, np.uint64), 0
    blocks, flat = np.uint64(present.shape[0]), present.ravel()
    hashes, tables = np.empty(_AHEAD, np.uint64), keys.shape[1]
    for first in range(0, keys.size, _AHEAD):
        end = min(first + _AHEAD, keys.size)
        for probe in range(first, end):
            hashes[probe - first] = mixed(keys[probe // tables, probe % tables])
            prefetch(flat, _block(hashes[probe - first], blocks) * np.uint64(BLOCK_WORDS))
        for probe in range(first, end):
            hashed = hashes[probe - first]
            block, bits, is_set = _block(hashed, blocks), _bits(hashed), np.uint64(1)
            for _ in range(BITS_SET):
                word = bits >> np.uint64(6) & np.uint64(BLOCK_WORDS - 1)
                is_set &= present[block, word] >> (bits & np.uint64(63))
                bits >>= np.uint64(9)
            if is_set == np.uint64(0):
                continue
            if size == len(groups):
                groups, probes = grown(groups, 2 * size), grown(probes, 2 * size)
            key = keys[probe // tables, probe % tables]
            table = key & np.uint64((1 << TABLE_BITS) - 1)
            groups[size] = table << np.uint64(TABLE_PLACE) | key >> np.uint64(TABLE_BITS) >> low_bits[table]
            probes[size] = np.uint64(probe)
            size += 1
    return GroupsToRead(groups[:size], probes[:size])

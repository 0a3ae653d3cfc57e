"""Hash tables of prefixes, one for each table of a layout, and the compiled loops that fill and search them.

Look-ups need only equal prefixes, so nothing is permuted or sorted: a table's keys are hashes of the masked
prefix bits. A bitmap filter in front of each table rejects nearly all look-ups that find nothing.
"""

from __future__ import annotations

import sys
from typing import Final, NamedTuple

import numpy as np

from stream.compiled import compiled
from stream.fingerprint.distance_compiled import hamming_distance
from stream.tables.arrays import I64, U8, U32, U64

PAIRS_AT_FIRST: Final = 1 << 14
"""Initial room for pairs."""
_SPREAD: Final = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93], np.uint64)
"""Odd multipliers, one per 64 bits, for Fibonacci hashing (Knuth, The Art of Computer Programming, section
6.4)."""
_FEWEST_SLOTS: Final = 12
_MOST_SLOTS: Final = 30
_ONE: Final = np.uint64(1)
_SIX: Final = np.uint64(6)
_LOW: Final = np.uint64(63)


class Entries(NamedTuple):
    """n fingerprints, and the words by whose prefixes they are indexed and looked up."""

    words: U64
    """(n, lanes)"""
    fingerprints: U64
    """(n, lanes)"""


class PrefixTables(NamedTuple):
    """n entries indexed by T prefixes. Rows are grouped by bucket, the high bits of their hashes."""

    indexed: Entries
    masks: U64
    """(T, lanes): bits of each table's prefix."""
    distance: int
    """Largest distance of a pair."""
    slot_shift: np.uint64
    """The right shift that turns a hash into a slot of the filter, and into a bucket."""
    bucket_shift: np.uint64
    seen: U64
    """(T, slots / 64): filter, a bit for each slot that a hash has."""
    first: U32
    """(T, buckets + 1): start of each bucket."""
    hashes: U64
    """(T, n), and the row of each."""
    rows: U32

    @classmethod
    def of(cls, indexed: Entries, masks: U64, distance: int) -> PrefixTables:
        """Tables of these entries."""
        size, tables = len(indexed.words), len(masks)
        # 32 filter bits per fingerprint let 3 % of foreign prefixes pass.
        slots = min(max(size.bit_length() + 4, _FEWEST_SLOTS), _MOST_SLOTS)
        buckets = max(1, size.bit_length())
        made = cls(
            indexed,
            masks,
            distance,
            slot_shift=np.uint64(64 - slots),
            bucket_shift=np.uint64(64 - buckets),
            seen=np.zeros((tables, 1 << slots - 6), np.uint64),
            first=np.zeros((tables, (1 << buckets) + 1), np.uint32),
            hashes=np.empty((tables, size), np.uint64),
            rows=np.empty((tables, size), np.uint32),
        )
        for table in range(tables):
            _fill(made, table)
        return made

    @property
    def bytes(self) -> int:
        """Size of the tables and their filters in bytes."""
        return self.seen.nbytes + self.first.nbytes + self.hashes.nbytes + self.rows.nbytes


class Bounds(NamedTuple):
    """Which pairs are wanted."""

    later: bool
    """Only those with a stored row greater than the other: for tables made of the entries that are looked up,
    so that each pair is found once."""
    most: int
    """Number of pairs after which a search ends, between two rows."""


ALL: Final = Bounds(later=False, most=sys.maxsize)


class NearPairs(NamedTuple):
    """Pairs of looked up rows and indexed rows (stored), and room for more."""

    row: I64
    stored: I64
    distance: U8
    size: int
    """Number of pairs."""
    compared: int
    """Number of comparisons that found them."""

    def pairs(self) -> tuple[I64, I64, U8]:
        """Rows, stored rows and distances, in the order in which they were found."""
        return self.row[: self.size], self.stored[: self.size], self.distance[: self.size]


@compiled
def hash_prefix(words: U64, which: int, mask: U64) -> np.uint64:
    """The hash of a table's prefix, given by `mask`, of the word in row `which`."""
    hashed = (words[which, 0] & mask[0]) * _SPREAD[0]
    for part in range(1, words.shape[1]):
        hashed += (words[which, part] & mask[part]) * _SPREAD[part]
    return np.uint64(hashed)


@compiled
def _fill(tables: PrefixTables, table: int) -> None:
    """Fill one table, whose filter and bucket starts are zero."""
    words, mask = tables.indexed.words, tables.masks[table]
    slot_shift, bucket_shift = tables.slot_shift, tables.bucket_shift
    seen, first = tables.seen[table], tables.first[table]
    hashes, rows = tables.hashes[table], tables.rows[table]
    for row in range(len(words)):
        hashed = hash_prefix(words, row, mask)
        slot = hashed >> slot_shift
        seen[slot >> _SIX] |= _ONE << (slot & _LOW)
        first[hashed >> bucket_shift] += 1
    end = np.uint32(0)
    for bucket in range(len(first)):
        end += first[bucket]
        first[bucket] = end
    # A counting sort: backwards, each row takes the last free place of its bucket.
    for row in range(len(words) - 1, -1, -1):
        hashed = hash_prefix(words, row, mask)
        place = hashed >> bucket_shift
        first[place] -= 1
        hashes[first[place]] = hashed
        rows[first[place]] = row


@compiled
def find_all(tables: PrefixTables, entries: Entries) -> NearPairs:
    """All near pairs of these entries (row) and the indexed ones (stored), each once, table by table."""
    words, near = entries.words, _no_pairs()
    passed = np.empty(len(words), np.int64)
    for table in range(len(tables.masks)):
        mask, seen, shift = tables.masks[table], tables.seen[table], tables.slot_shift
        count = 0
        for row in range(len(words)):  # branch-free, so that the cache misses of many look-ups overlap
            slot = hash_prefix(words, row, mask) >> shift
            passed[count] = row
            count += int(seen[slot >> _SIX] >> (slot & _LOW) & _ONE)
        near, _ = _find(tables, (table, table + 1), entries, passed[:count], ALL, near)
    return near


@compiled
def find_slice(
    tables: PrefixTables, entries: Entries, rows: tuple[int, int], bounds: Bounds
) -> tuple[NearPairs, int]:
    """The near pairs of a range of these entries (row) and the indexed ones (stored), each once; and the row
    at which the search ended."""
    first, end = rows
    near, done = _find(tables, (0, len(tables.masks)), entries, np.arange(first, end), bounds, _no_pairs())
    return near, first + done


@compiled
def _no_pairs() -> NearPairs:
    row, stored = np.empty((2, PAIRS_AT_FIRST), np.int64)
    return NearPairs(row, stored, np.empty(PAIRS_AT_FIRST, np.uint8), 0, 0)


@compiled
def _find(
    tables: PrefixTables,
    between: tuple[int, int],
    entries: Entries,
    entry_rows: I64,
    bounds: Bounds,
    before: NearPairs,
) -> tuple[NearPairs, int]:
    """The pairs of `before`, and the near pairs of the entries in the rows `entry_rows` in the tables
    [between[0], between[1]); and how many of these rows were looked up."""
    # Bound to names first: to take an array out of a named tuple within a loop would count a reference.
    (indexed, indexed_fingerprints), masks, most_apart, slot_shift, bucket_shift = tables[:5]
    seen, first, hashes, stored_rows = tables[5:]
    (words, fingerprints), (later, most) = entries, bounds
    rows, others, distances, size, compared = before
    for at in range(len(entry_rows)):
        if size >= most:
            return NearPairs(rows, others, distances, size, compared), at
        row = entry_rows[at]
        for table in range(between[0], between[1]):
            hashed = hash_prefix(words, row, masks[table])
            slot, bucket = hashed >> slot_shift, hashed >> bucket_shift
            if not seen[table, slot >> _SIX] >> (slot & _LOW) & _ONE:
                continue
            for place in range(first[table, bucket], first[table, bucket + _ONE]):
                if hashes[table, place] != hashed:
                    continue
                stored = np.int64(stored_rows[table, place])
                if later and stored <= row:
                    continue
                compared += 1
                apart = hamming_distance(fingerprints, row, indexed_fingerprints, stored)
                if apart > most_apart or not _is_first_shared(words[row], indexed[stored], masks, table):
                    continue
                if size == len(rows):
                    rows, others, distances = _grow(rows, others, distances)
                rows[size], others[size], distances[size] = row, stored, apart
                size += 1
    return NearPairs(rows, others, distances, size, compared), len(entry_rows)


@compiled
def _grow(row: I64, stored: I64, distance: U8) -> tuple[I64, I64, U8]:
    rows, others = np.empty((2, 2 * len(row)), np.int64)
    distances = np.empty(2 * len(row), np.uint8)
    rows[: len(row)], others[: len(row)], distances[: len(row)] = row, stored, distance
    return rows, others, distances


@compiled
def _is_first_shared(one: U64, other: U64, masks: U64, table: int) -> bool:
    """Whether this is the first table whose prefix the two share. A pair is reported by that table only."""
    for each in range(table + 1):
        shared = True
        for part in range(len(one)):
            shared &= not (one[part] ^ other[part]) & masks[each, part]
        if shared:
            return each == table
    return False

"""Compiled loops over prefixes: the prefix of a key in a table, and the prefixes that queries probe."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.compiled import borrowing, compiled, popcount
from stream.tables.arrays import I64, U8, U64
from stream.tables.design import TABLE_BITS, PrefixPieces
from stream.tables.search.packed_pairs import Integer
from stream.tables.search.queries import Queries

PROBES_AT_ONCE: Final = 1024
"""Probes whose memory is prefetched together, unless a single row has more. With 64, fewer cache misses
overlap, and searches take 5 % longer; with 256, they take up to 8 % longer, for the cost of each round."""
LISTED_BITS: Final = 64
"""Most uncertain bits that a row can list."""


@borrowing
def prefix_of(words: U64, row: Integer | np.uint64, pieces: PrefixPieces, table: Integer) -> np.uint64:
    """The prefix in a table of the key in a row of `words`, which may have further columns."""
    prefix = np.uint64(0)
    for piece in range(pieces.shifts.shape[1]):
        word = words[row, pieces.words[table, piece]]
        part = (word >> pieces.shifts[table, piece]) & pieces.masks[table, piece]
        prefix |= part << pieces.places[table, piece]
    return prefix


@compiled
def keys_of(words: U64, pieces: PrefixPieces) -> U64:
    """The bucket keys (n, T) of keys (n, W), as by `Design.keys`."""
    tables = pieces.shifts.shape[0]
    keys = np.empty((words.shape[0], tables), np.uint64)
    for row in range(words.shape[0]):
        for table in range(tables):
            prefix = prefix_of(words, row, pieces, table)
            keys[row, table] = prefix << np.uint64(TABLE_BITS) | np.uint64(table)
    return keys


@compiled
def uncertain_bits(block_of_bit: U8, subsets: I64, uncertain: U8, flip_bits: int) -> U8:
    """The first `flip_bits` uncertain bits within each table's prefix, shape (flip_bits, n, T).

    `block_of_bit` and `subsets` are the design's. `uncertain` lists bit indexes, least certain first, shape
    (n, u <= LISTED_BITS). The caller ensures that they are below the design's width. If fewer of them are
    within a prefix, the remaining places hold the width, which means no bit.
    """
    rows, tables = uncertain.shape[0], subsets.shape[0]
    bits = np.full((flip_bits, rows, tables), np.uint8(len(block_of_bit)), np.uint8)
    if flip_bits == 0:
        return bits
    one = np.uint64(1)
    places = np.empty(np.int64(block_of_bit.max()) + 1, np.uint64)  # block -> bitmap of places in the list
    for row in range(rows):
        places[:] = 0
        for place in range(uncertain.shape[1]):
            places[block_of_bit[uncertain[row, place]]] |= one << np.uint64(place)
        for table in range(tables):
            left = np.uint64(0)
            for block in subsets[table]:
                left |= places[block]
            for flip in range(flip_bits):
                if left == np.uint64(0):
                    break
                below = left - one
                bits[flip, row, table] = uncertain[row, popcount(below & ~left)]
                left &= below
    return bits


class Probes(NamedTuple):
    """Room for p probes."""

    prefix: U64
    row: I64
    table: U64
    exact: NDArray[np.bool_]
    """Whether it is the unmodified prefix."""


@compiled
def probed_prefixes(queries: Queries, first: int, end: int, probes: Probes) -> int:
    """Write what the rows [first, end) probe to `probes`. Returns the number of probes.

    If a prefix has no bit that a probe flips, the probe equals its parent and is left out.
    """
    keys, bits, (parents, added) = queries.keys, queries.bits, queries.tree
    written = 0
    probed = np.empty(len(parents), np.uint64)
    for row in range(first, end):
        for table in range(keys.shape[1]):
            probed[0] = keys[row, table] >> np.uint64(TABLE_BITS)
            for probe in range(len(parents)):
                flip = np.uint64(0)
                if probe:
                    flip = queries.key_flip[bits[added[probe], row, table], table] >> np.uint64(TABLE_BITS)
                    probed[probe] = probed[parents[probe]] ^ flip
                probes.prefix[written] = probed[probe]
                probes.row[written], probes.table[written] = row, np.uint64(table)
                probes.exact[written] = probe == 0
                written += probe == 0 or flip != np.uint64(0)
    return written

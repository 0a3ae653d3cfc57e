"""Compiled loops over prefixes: the prefix of a key in a table, and the prefixes that queries probe."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from stream.compiled import borrowing, compiled
from stream.tables.arrays import I64, U64
from stream.tables.design import TABLE_BITS, PrefixPieces
from stream.tables.search.packed_pairs import Integer
from stream.tables.search.queries import Queries

PROBES_AT_ONCE: Final = 1024
"""Probes whose memory is prefetched together, unless a single row has more. With 64, fewer cache misses
overlap, and searches take 5 % longer; with 256, they take up to 8 % longer, for the cost of each round."""


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


class Probes(NamedTuple):
    """Room for p probes."""

    prefix: U64
    row: I64
    table: U64


@compiled
def probed_prefixes(queries: Queries, first: int, end: int, probes: Probes) -> int:
    """Write what the rows [first, end) probe to `probes`. Returns the number of probes."""
    keys, written = queries.keys, 0
    for row in range(first, end):
        for table in range(keys.shape[1]):
            probes.prefix[written] = keys[row, table] >> np.uint64(TABLE_BITS)
            probes.row[written], probes.table[written] = row, np.uint64(table)
            written += 1
    return written

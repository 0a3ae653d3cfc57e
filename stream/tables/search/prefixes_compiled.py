"""Compiled loops over prefixes: the prefix of a key in a table, and its bucket keys."""

from __future__ import annotations

import numpy as np

from stream.compiled import borrowing, compiled
from stream.tables.arrays import U64
from stream.tables.design import TABLE_BITS, PrefixPieces
from stream.tables.search.packed_pairs import Integer


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

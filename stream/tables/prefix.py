"""Prefixes of the tables, in compiled loops: a word's, and those that rows probe."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled
from stream.tables.candidates import I64, U8
from stream.tables.design import TABLE_BITS, U64

PROBES_AT_ONCE: Final = 64
"""Probes of which the memory is asked for at once, as long as those of a row are not more."""


@compiled
def prefix_of(word: np.uint64, shifts: U64, masks: U64, places: U64, table: int) -> np.uint64:
    """`shifts`, `masks`, `places` are `Design.pieces`."""
    prefix = np.uint64(0)
    for piece in range(shifts.shape[1]):
        prefix |= ((word >> shifts[table, piece]) & masks[table, piece]) << places[table, piece]
    return prefix


@compiled
def keys_of(words: U64, shifts: U64, masks: U64, places: U64) -> U64:
    """What `Design.keys` gives."""
    keys = np.empty((words.shape[0], shifts.shape[0]), np.uint64)
    for row in range(words.shape[0]):
        for table in range(shifts.shape[0]):
            prefix = prefix_of(words[row], shifts, masks, places, table)
            keys[row, table] = prefix << np.uint64(TABLE_BITS) | np.uint64(table)
    return keys


@compiled
def probed_prefixes(
    keys: U64,
    flip_bits: U8,
    key_flip: U64,
    parents: I64,
    added: I64,
    first: int,
    end: int,
    prefixes: U64,
    row_of: I64,
    table_of: U64,
    exact: NDArray[np.bool_],
) -> int:
    """Write down the prefixes that the rows [first, end) probe, and how many these are.

    `row_of` and `table_of` get whose they are, `exact` whether it is the row's own prefix. `keys` (n, T),
    `flip_bits` (F, n, T), and the tree are a `Probing`'s: probe p flips what `parents[p]` flips, and
    `flip_bits[added[p]]`. Where there is no such bit in a prefix, the parent looks there already.
    """
    tables, written = keys.shape[1], 0
    probed = np.empty(len(parents), np.uint64)
    for row in range(first, end):
        for table in range(tables):
            probed[0] = keys[row, table] >> np.uint64(TABLE_BITS)
            for probe in range(len(parents)):
                flip = np.uint64(0)
                if probe:
                    flip = key_flip[flip_bits[added[probe], row, table], table] >> np.uint64(TABLE_BITS)
                    probed[probe] = probed[parents[probe]] ^ flip
                prefixes[written] = probed[probe]
                row_of[written], table_of[written] = row, np.uint64(table)
                exact[written] = probe == 0
                written += probe == 0 or flip != np.uint64(0)
    return written

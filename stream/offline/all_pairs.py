"""All near pairs within one set, by sorting it once per table (Manku, Jain, Das Sarma, WWW 2007,
section 3.1).

Near fingerprints share the prefix of at least one table, so they are adjacent in the order of that table.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from stream.fingerprint.lanes import as_words, distances
from stream.fingerprint.row import WORD
from stream.offline.batch_tables import CHUNK, layout_for
from stream.offline.layouts import Layout
from stream.offline.pairs import Pairs
from stream.tables.arrays import I64, U64


def all_pairs(
    fingerprints: U64, width: int, distance: int, *, threads: int = 1, layout: Layout | None = None
) -> tuple[Pairs, int]:
    """All pairs (row < stored) of fingerprints (n, lanes) within the distance, and the number of comparisons.

    Each thread processes one table at a time, in 8 bytes per fingerprint. Raises SettingsError.
    """
    words = as_words(fingerprints, width)
    layout = layout if layout is not None else layout_for(len(words), width, distance)
    layout.refuse_beyond(distance)

    def search_table(table: int) -> tuple[Pairs, int]:
        parts, compared = [], 0
        for row, stored in _pairs_in_table(layout, words, table):
            apart = distances(words[row], words[stored])
            near = np.flatnonzero(apart <= distance)
            parts.append(Pairs(row[near], stored[near], apart[near]))
            compared += len(row)
        return Pairs.merge(parts), compared

    with ThreadPoolExecutor(threads, thread_name_prefix="pairs") as pool:
        per_table = list(pool.map(search_table, range(layout.tables)))
    return Pairs.merge([pairs for pairs, _ in per_table]), sum(compared for _, compared in per_table)


def _pairs_in_table(layout: Layout, words: U64, table: int) -> Iterator[tuple[I64, I64]]:
    """Yield all pairs of rows with equal prefixes in a table, the smaller row first."""
    count = len(words)
    low = np.uint64(count.bit_length())
    if layout.key_bits(table) + int(low) > WORD:
        keys = layout.keys(words, table)
        order = np.argsort(keys, kind="stable")
        keys, rows = keys[order], order
    else:
        # Sorting (prefix, row) packed into integers, which NumPy vectorises, is faster than an argsort.
        keys = np.empty(count, np.uint64)
        for first in range(0, count, CHUNK):
            part = words[first : first + CHUNK]
            numbers = np.arange(first, first + len(part), dtype=np.uint64)
            np.bitwise_or(layout.keys(part, table) << low, numbers, out=keys[first : first + CHUNK])
        keys.sort()
        rows = None
    mask = np.uint64((1 << int(low)) - 1)

    def row(places: I64) -> I64:
        return (keys[places] & mask).view(np.int64) if rows is None else rows[places]

    def prefix(part: U64) -> U64:
        return part >> low if rows is None else part

    parts = [np.zeros(0, np.int64)]
    for first in range(0, count - 1, CHUNK):
        part = prefix(keys[first : first + CHUNK + 1])
        parts.append(np.flatnonzero(part[1:] == part[:-1]) + first)
    places = np.concatenate(parts)
    apart = 1
    while len(places):
        yield row(places), row(places + apart)
        apart += 1
        places = places[places + apart < count]
        places = places[prefix(keys[places]) == prefix(keys[places + apart])]

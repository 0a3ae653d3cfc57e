"""Fingerprints with their bits in the order of a table, the prefix first (Manku et al., section 3)."""

from __future__ import annotations

from functools import cache

import numpy as np

from stream.fingerprint.row import WORD
from stream.offline.layouts import Layout, Move, moves
from stream.tables.arrays import U64


def permute(words: U64, layout: Layout, table: int) -> U64:
    """Fingerprints (n, lanes) with the bits of a table's prefix first, and then the others in their order."""
    permuted = np.zeros(words.shape, np.uint64)
    for move in _moves(tuple(layout.prefixes[table]), layout.width):
        part = (words[:, move.from_word] >> np.uint64(move.right)) & np.uint64(move.mask)
        permuted[:, move.to_word] |= part << np.uint64(move.left)
    return permuted


def key_shift(layout: Layout, table: int) -> np.uint64:
    """The right shift that turns the first 64 bits of a permuted fingerprint into its key."""
    return np.uint64(min(layout.width, WORD) - layout.key_bits(table))


@cache
def _moves(prefix: tuple[int, ...], width: int) -> list[Move]:
    return moves([*prefix, *sorted(set(range(width)) - set(prefix))], width)

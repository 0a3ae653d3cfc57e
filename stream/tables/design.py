"""The table design "m choose r": the bits of a fingerprint that form the prefix of each table.

Manku, Jain, Das Sarma, "Detecting Near-Duplicates for Web Crawling" (WWW 2007), section 3: if two
fingerprints differ in at most m - r bits, at least r of their m blocks are equal, so they share the prefix of
at least one of the C(m, r) tables.
"""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.errors import SettingsError
from stream.tables.arrays import U64

TABLE_BITS: Final = 6
"""Low bits of a bucket key that hold the table number."""
MOST_TABLES: Final = 1 << TABLE_BITS
LONGEST_PREFIX: Final = 64 - TABLE_BITS


class PrefixPieces(NamedTuple):
    """How to take the prefixes of T tables out of a 64-bit word: the prefix of a table is the OR of
    ((word >> shift) & mask) << place over its r pieces. Each array has the shape (T, r)."""

    shifts: U64
    masks: U64
    places: U64


class Design:
    """A table design and the computation of its bucket keys.

    Block 0 is the most significant. Block widths differ by at most one bit, wider blocks first. The prefix of
    table t consists of the t-th r-subset of the blocks, in lexicographic order. Bit index i means `1 << i`.

    Raises SettingsError, which names `blocks` or `choose`, if the design has more than 64 tables or a prefix
    of more than 58 bits.
    """

    def __init__(self, blocks: int, choose: int, width: int = 64) -> None:
        if not 1 <= width <= 64:
            raise SettingsError(f"width: {width} bits is not within 1 to 64")
        if not 1 <= blocks <= width:
            raise SettingsError(f"blocks: {blocks} blocks of {width} bits is not within 1 to {width}")
        if not 1 <= choose <= blocks:
            raise SettingsError(f"choose: {choose} of {blocks} blocks is not within 1 to {blocks}")
        tables = comb(blocks, choose)
        if tables > MOST_TABLES:
            raise SettingsError(
                f"blocks, choose: {blocks} choose {choose} makes {tables} tables; at most {MOST_TABLES}"
                " are allowed"
            )
        widths = np.full(blocks, width // blocks, np.int64)
        widths[: width % blocks] += 1
        subsets = np.array(list(combinations(range(blocks), choose)), np.int64)
        prefix_bits = widths[subsets].sum(axis=1)
        if prefix_bits.max() > LONGEST_PREFIX:
            raise SettingsError(
                f"choose: {choose} of {blocks} blocks is a prefix of {prefix_bits.max()} bits;"
                f" at most {LONGEST_PREFIX} are allowed"
            )
        self.blocks: Final = blocks
        self.choose: Final = choose
        self.width: Final = width
        self.tables: Final = tables
        self.exact_distance: Final = blocks - choose
        """All pairs within this Hamming distance share a prefix."""
        self.prefix_bits: Final[NDArray[np.int64]] = prefix_bits
        """Shape (T,): length of each table's prefix in bits."""
        self.block_of_bit: Final[NDArray[np.uint8]] = np.repeat(
            np.arange(blocks, dtype=np.uint8)[::-1], widths[::-1]
        )
        """Shape (width,): the block of each bit index."""
        self.subsets: Final[NDArray[np.int64]] = subsets
        """Shape (T, r): the blocks of each table's prefix."""

        self._shift = (width - np.cumsum(widths)).astype(np.uint64)
        self._block_mask = ((1 << widths.astype(object)) - 1).astype(np.uint64)
        after = np.cumsum(widths[subsets][:, ::-1], axis=1)[:, ::-1] - widths[subsets]
        self._place = (after + TABLE_BITS).astype(np.uint64)
        self._numbers = np.arange(tables, dtype=np.uint64)
        self.pieces: Final = PrefixPieces(
            self._shift[subsets], self._block_mask[subsets], self._place - np.uint64(TABLE_BITS)
        )
        """The prefixes for compiled loops."""
        mask_of_block = self._block_mask << self._shift
        self.prefix_mask: Final[U64] = np.bitwise_or.reduce(mask_of_block[subsets], axis=1)
        """Shape (T,): the bits of a fingerprint that are in each table's prefix."""
        single = np.uint64(1) << np.arange(width, dtype=np.uint64)
        self.key_bit: Final[U64] = np.where(
            self.prefix_mask & single[:, None], self.keys(single) ^ self.keys(np.zeros(1, np.uint64)), 0
        ).astype(np.uint64)
        """Shape (width, T): the bit of each table's key that flips with a bit of the fingerprint; 0 if it is
        outside the prefix."""
        self.key_flip: Final[U64] = np.concatenate([self.key_bit, np.zeros((1, tables), np.uint64)])
        """Shape (width + 1, T): `key_bit`, and a row of zeros for the bit index `width`, which means no
        bit."""

    def keys(self, fingerprints: U64) -> U64:
        """Bucket keys, shape (n, T), of fingerprints, shape (n,): permuted prefix << 6 | table."""
        blocks = (fingerprints[:, None] >> self._shift) & self._block_mask
        # `take` gives a C-contiguous array. Indexing would not, and is a different type to compiled code.
        keys: U64 = blocks.take(self.subsets[:, 0], axis=1) << self._place[:, 0]
        for position in range(1, self.choose):
            keys |= blocks.take(self.subsets[:, position], axis=1) << self._place[:, position]
        keys |= self._numbers
        return keys

    def prefixes(self, fingerprints: U64, table: int) -> U64:
        """Permuted prefixes of one table, shape (n,)."""
        prefixes = np.zeros(len(fingerprints), np.uint64)
        for block, place in zip(self.subsets[table], self._place[table], strict=True):
            part = (fingerprints >> self._shift[block]) & self._block_mask[block]
            prefixes |= part << (place - np.uint64(TABLE_BITS))
        return prefixes

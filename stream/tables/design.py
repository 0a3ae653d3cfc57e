"""The table design "m choose r": the bits of a fingerprint that form the prefix of each table.

Manku, Jain, Das Sarma, "Detecting Near-Duplicates for Web Crawling" (WWW 2007), section 3: if two
fingerprints differ in at most m - r bits, at least r of their m blocks are equal, so they share the prefix of
at least one of the C(m, r) tables.
"""

from __future__ import annotations

from collections.abc import Sequence
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


class Block(NamedTuple):
    """Where a block stands in a key of several words."""

    word: int
    shift: int
    bits: int


class PrefixPieces(NamedTuple):
    """How to take the prefixes of T tables out of a key of several words: the prefix of a table is the OR of
    ((key[word] >> shift) & mask) << place over its r pieces. Each array has the shape (T, r)."""

    words: U64
    shifts: U64
    masks: U64
    places: U64


class Design:
    """A table design and the computation of its bucket keys.

    The key has `width` bits: one word, or several with blocks at given `places`, which may leave bits out. In
    one word, block 0 is the most significant, and block widths differ by at most one bit, wider blocks first.
    The prefix of table t consists of the t-th r-subset of the blocks, in lexicographic order, unless other
    `subsets` are given. Bit index i means `1 << i`.

    Raises SettingsError, which names `blocks` or `choose`, if the design has more than 64 tables or a prefix
    of more than 58 bits.
    """

    def __init__(
        self,
        blocks: int,
        choose: int,
        width: int = 64,
        places: Sequence[Block] = (),
        *,
        subsets: Sequence[Sequence[int]] = (),
    ) -> None:
        if not (1 <= width <= 64 or places):
            raise SettingsError(f"width: {width} bits is not within 1 to 64")
        if not 1 <= blocks <= width:
            raise SettingsError(f"blocks: {blocks} blocks of {width} bits is not within 1 to {width}")
        if not 1 <= choose <= blocks:
            raise SettingsError(f"choose: {choose} of {blocks} blocks is not within 1 to {blocks}")
        tables = len(subsets) or comb(blocks, choose)
        if tables > MOST_TABLES:
            raise SettingsError(
                f"blocks, choose: {blocks} choose {choose} makes {tables} tables; at most {MOST_TABLES}"
                " are allowed"
            )
        placed = list(places) or _blocks_of_word(blocks, width)
        widths = np.array([block.bits for block in placed], np.int64)
        chosen = np.array(list(subsets or combinations(range(blocks), choose)), np.int64)
        prefix_bits = widths[chosen].sum(axis=1)
        if prefix_bits.max() > LONGEST_PREFIX:
            raise SettingsError(
                f"choose: {choose} of {blocks} blocks is a prefix of {prefix_bits.max()} bits;"
                f" at most {LONGEST_PREFIX} are allowed"
            )
        self.blocks: Final = blocks
        self.choose: Final = choose
        self.width: Final = width
        self.tables: Final = tables
        self.places: Final = tuple(places)
        """The blocks of a key of several words; empty if it is one word."""
        self.words: Final = -(-width // 64)
        """Number of words of a key, W."""
        self.prefix_bits: Final[NDArray[np.int64]] = prefix_bits
        """Shape (T,): length of each table's prefix in bits."""
        bits = 0 if places else width
        self.block_of_bit: Final[NDArray[np.uint8]] = np.repeat(
            np.arange(blocks, dtype=np.uint8)[::-1], widths[::-1]
        )[:bits]
        """Shape (b,): the block of each bit index. b is `width`, or 0 for several words."""
        self.subsets: Final[NDArray[np.int64]] = chosen
        """Shape (T, r): the blocks of each table's prefix."""

        word, shift = (np.array([block[i] for block in placed], np.uint64) for i in range(2))
        mask = ((1 << widths.astype(object)) - 1).astype(np.uint64)
        after = np.cumsum(widths[chosen][:, ::-1], axis=1)[:, ::-1] - widths[chosen]
        self.pieces: Final = PrefixPieces(word[chosen], shift[chosen], mask[chosen], after.astype(np.uint64))
        """The prefixes for compiled loops."""
        self.prefix_masks: Final[U64] = np.zeros((tables, self.words), np.uint64)
        """Shape (T, W): the bits of a key that are in each table's prefix."""
        for blocks_of in chosen.T:
            self.prefix_masks[range(tables), word[blocks_of]] |= (mask << shift)[blocks_of]

    def keys(self, words: U64) -> U64:
        """Bucket keys, shape (n, T), of n keys, shape (n,) or (n, W): permuted prefix << 6 | table."""
        keys = np.empty((len(words), self.tables), np.uint64)
        for table in range(self.tables):
            keys[:, table] = self.prefixes(words, table) << np.uint64(TABLE_BITS) | np.uint64(table)
        return keys

    def prefixes(self, words: U64, table: int) -> U64:
        """Permuted prefixes (n,) of one table, of n keys: (n,), or (n, W) and possibly more columns."""
        columns = words if words.ndim == 2 else words[:, None]
        prefixes = np.zeros(len(words), np.uint64)
        for word, shift, mask, place in zip(*(each[table] for each in self.pieces), strict=True):
            prefixes |= ((columns[:, word] >> shift) & mask) << place
        return prefixes


def _blocks_of_word(blocks: int, width: int) -> list[Block]:
    widths = [width // blocks + (block < width % blocks) for block in range(blocks)]
    return [Block(0, width - sum(widths[: block + 1]), bits) for block, bits in enumerate(widths)]

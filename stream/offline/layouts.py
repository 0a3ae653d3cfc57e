"""Table layouts for fingerprints of 32, 64 or 128 bits: which bits are the prefix of each table.

Manku, Jain, Das Sarma (WWW 2007), section 3.1: the bits are divided into blocks, and each table moves some
blocks to the front. `choose` moves r of m blocks. `two_level` moves one of m blocks, divides the remaining
bits into blocks again, and moves one of those as well: the paper's 16 tables with prefixes of 28 bits.

The judge has its own implementation of the first kind for 64 bits, `stream.tables.design`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, combinations
from math import comb
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.errors import SettingsError
from stream.fingerprint.lanes import words_of
from stream.fingerprint.row import WORD
from stream.tables.arrays import U64

MOST_TABLES: Final = 4096
_CHOOSE: Final = re.compile(r"(\d+) ?choose ?(\d+)")
_TWO_LEVEL: Final = re.compile(r"(\d+) ?then ?(\d+)")


class Layout:
    """A set of tables such that every pair within `distance` bits shares the prefix of at least one table.

    Blocks are numbered from the most significant bit; their widths differ by at most one, wider ones first.
    Raises SettingsError, which names `layout`, if there are too few bits or too many tables.
    """

    def __init__(self, name: str, width: int, prefixes: list[list[int]], distance: int) -> None:
        self.name: Final = name
        self.width: Final = width
        self.tables: Final = len(prefixes)
        self.distance: Final = distance
        self.prefix_bits: Final[NDArray[np.int64]] = np.array([len(p) for p in prefixes], np.int64)
        """Shape (T,): length in bits of each table's prefix."""
        words = words_of(width)
        self.masks: Final[U64] = np.zeros((len(prefixes), words), np.uint64)
        """Shape (T, lanes): mask of the bits of a fingerprint that form each table's prefix."""
        self._moves = [moves(prefix, width) for prefix in prefixes]
        for table, prefix in enumerate(prefixes):
            for bit in prefix:
                word, place = divmod(width - 1 - bit, WORD)
                self.masks[table, words - 1 - word] |= np.uint64(1 << place)

    def key_bits(self, table: int) -> int:
        """Bits of the prefix that `keys` covers, at most 64."""
        return min(int(self.prefix_bits[table]), WORD)

    def keys(self, words: U64, table: int) -> U64:
        """The prefixes for one table as integers, (n,), or the first 64 bits of longer ones."""
        top = min(self.width, WORD)
        keys = np.zeros(len(words), np.uint64)
        low = top - self.key_bits(table)
        for move in self._moves[table]:
            if move.to_word == 0:
                part = (words[:, move.from_word] >> np.uint64(move.right)) & np.uint64(move.mask)
                keys |= part << np.uint64(move.left - low)
        return keys

    @classmethod
    def choose(cls, blocks: int, chosen: int, width: int = 64) -> Layout:
        """A table for each `chosen` of `blocks` blocks. Finds all pairs within blocks - chosen bits."""
        if not 1 <= chosen <= blocks <= width:
            raise SettingsError(f"layout: {blocks} choose {chosen} of {width} bits; 1 <= r <= m <= {width}")
        if comb(blocks, chosen) > MOST_TABLES:
            raise SettingsError(
                f"layout: {blocks} choose {chosen} makes {comb(blocks, chosen)} tables; at most {MOST_TABLES}"
            )
        parts = _blocks(list(range(width)), blocks)
        prefixes = [list(chain.from_iterable(subset)) for subset in combinations(parts, chosen)]
        return cls(f"{blocks} choose {chosen}", width, prefixes, blocks - chosen)

    @classmethod
    def two_level(cls, first: int, second: int, width: int = 64) -> Layout:
        """A table for each of `first` blocks and each of `second` blocks of the remaining bits. Finds all
        pairs within min(first, second) - 1 bits."""
        if not (1 <= first <= width and 1 <= second <= width - -(-width // first)):
            raise SettingsError(f"layout: {first} then {second} blocks do not fit {width} bits")
        if first * second > MOST_TABLES:
            raise SettingsError(f"layout: {first} then {second} makes over {MOST_TABLES} tables")
        prefixes = []
        for block in _blocks(list(range(width)), first):
            rest = [bit for bit in range(width) if bit not in set(block)]
            prefixes += [block + inner for inner in _blocks(rest, second)]
        return cls(f"{first} then {second}", width, prefixes, min(first, second) - 1)

    @classmethod
    def parse(cls, text: str, width: int = 64) -> Layout:
        """The layout of a name such as `5 choose 2` or `4 then 4`. Raises SettingsError."""
        if parts := _CHOOSE.fullmatch(text.strip()):
            return cls.choose(int(parts[1]), int(parts[2]), width)
        if parts := _TWO_LEVEL.fullmatch(text.strip()):
            return cls.two_level(int(parts[1]), int(parts[2]), width)
        raise SettingsError(f"layout: {text!r} is not a layout such as `5 choose 2` or `4 then 4`")

    def refuse_beyond(self, distance: int) -> None:
        """Raise SettingsError if pairs at that distance could be missed."""
        if distance > self.distance:
            raise SettingsError(
                f"distance: {distance}, but {self.name} finds every pair up to {self.distance} bits only"
            )


class Move(NamedTuple):
    """The move of a run of bits from one lane to another: shifted right, masked, shifted left."""

    from_word: int
    right: int
    mask: int
    to_word: int
    left: int


def moves(bits: Sequence[int], width: int) -> list[Move]:
    """Return the moves that bring `bits` of a fingerprint of `width` bits to its front, in their order."""
    last, result, place = words_of(width) - 1, [], 0
    while place < len(bits):
        length = 1
        while place + length < len(bits) and bits[place + length] == bits[place] + length:
            length += 1
        source, target = width - bits[place] - length, width - place - length
        done = 0
        while done < length:
            low, to = source + done, target + done
            size = min(length - done, WORD - low % WORD, WORD - to % WORD)
            mask = (1 << size) - 1
            result.append(Move(last - low // WORD, low % WORD, mask, last - to // WORD, to % WORD))
            done += size
        place += length
    return result


def _blocks(bits: list[int], count: int) -> list[list[int]]:
    small, wide = divmod(len(bits), count)
    blocks, start = [], 0
    for block in range(count):
        end = start + small + (block < wide)
        blocks.append(bits[start:end])
        start = end
    return blocks

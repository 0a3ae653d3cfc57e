"""Permutations of fingerprints of 32, 64 or 128 bits: which bits stand first in each table.

Manku, Jain, Das Sarma (WWW 2007), section 3.1: the bits are cut into blocks, and each table moves some of
them to the front. `choose` takes r of m blocks; `two_level` takes one of m blocks, cuts the other bits into
blocks again, and takes one of those: the paper's 16 tables with prefixes of 28 bits.

`stream.tables.design` is the judge's own arithmetic for the first kind and 64 bits; this one is for any.
"""

from __future__ import annotations

import re
from itertools import chain, combinations
from math import comb
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.errors import SettingsError
from stream.tables.arrays import U64
from stream.tables.words import WORD, words_of

MOST_TABLES: Final = 4096
_CHOOSE: Final = re.compile(r"(\d+) ?choose ?(\d+)")
_TWO_LEVEL: Final = re.compile(r"(\d+) ?then ?(\d+)")


class Layout:
    """Tables of permuted fingerprints. Every pair within `distance` bits shares the prefix of some table.

    Blocks are counted from the most significant bit; their widths differ by at most one, wider ones first.
    Raises SettingsError, naming `layout`, when there are not enough bits or too many tables.
    """

    def __init__(self, name: str, width: int, prefixes: list[list[int]], distance: int) -> None:
        self.name: Final = name
        self.width: Final = width
        self.tables: Final = len(prefixes)
        self.distance: Final = distance
        self.prefix_bits: Final[NDArray[np.int64]] = np.array([len(p) for p in prefixes], np.int64)
        """Shape (T,): length of each table's prefix."""
        self._words = words_of(width)
        self.masks: Final[U64] = np.zeros((len(prefixes), self._words), np.uint64)
        """Shape (T, words): the bits of each table's prefix, where they stand in a fingerprint."""
        self._pieces: list[list[tuple[int, int, int, int, int]]] = []
        for table, prefix in enumerate(prefixes):
            for bit in prefix:
                word, place = divmod(width - 1 - bit, WORD)
                self.masks[table, self._words - 1 - word] |= np.uint64(1 << place)
            first = set(prefix)
            self._pieces.append(self._cut([*prefix, *(bit for bit in range(width) if bit not in first)]))

    def _cut(self, order: list[int]) -> list[tuple[int, int, int, int, int]]:
        """Runs of bits that move together: (from word, right shift, mask, to word, left shift)."""
        pieces, place = [], 0
        while place < self.width:
            length = 1
            while place + length < self.width and order[place + length] == order[place] + length:
                length += 1
            source, target = self.width - order[place] - length, self.width - place - length
            done = 0
            while done < length:
                low, to = source + done, target + done
                bits = min(length - done, WORD - low % WORD, WORD - to % WORD)
                from_word, to_word = self._words - 1 - low // WORD, self._words - 1 - to // WORD
                pieces.append((from_word, low % WORD, (1 << bits) - 1, to_word, to % WORD))
                done += bits
            place += length
        return pieces

    def permute(self, words: U64, table: int) -> U64:
        """Fingerprints (n, words) as they stand in a table: same bits, the prefix first."""
        permuted = np.zeros(words.shape, np.uint64)
        for from_word, right, mask, to_word, left in self._pieces[table]:
            part = (words[:, from_word] >> np.uint64(right)) & np.uint64(mask)
            permuted[:, to_word] |= part << np.uint64(left)
        return permuted

    def key_bits(self, table: int) -> int:
        """How many bits `keys` compares: the prefix, of which the first word is enough."""
        return min(int(self.prefix_bits[table]), WORD)

    def key_shift(self, table: int) -> np.uint64:
        """How far a permuted first word is shifted to give the key."""
        return np.uint64(min(self.width, WORD) - self.key_bits(table))

    def keys(self, words: U64, table: int) -> U64:
        """Prefixes of one table as numbers, (n,); the first 64 bits of a longer one."""
        top = min(self.width, WORD)
        keys = np.zeros(len(words), np.uint64)
        low = top - self.key_bits(table)
        for from_word, right, mask, to_word, left in self._pieces[table]:
            if to_word or left + mask.bit_length() <= low:
                continue
            part = (words[:, from_word] >> np.uint64(right)) & np.uint64(mask)
            keys |= part << np.uint64(left - low) if left >= low else part >> np.uint64(low - left)
        return keys

    @classmethod
    def choose(cls, blocks: int, chosen: int, width: int = 64) -> Layout:
        """`chosen` of `blocks` blocks in front: comb(blocks, chosen) tables, exact to blocks - chosen."""
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
        """One of `first` blocks, then one of `second` blocks of the rest; exact to the smaller one less 1."""
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
        """`5 choose 2` or `4 then 4`. Raises SettingsError."""
        if found := _CHOOSE.fullmatch(text.strip()):
            return cls.choose(int(found[1]), int(found[2]), width)
        if found := _TWO_LEVEL.fullmatch(text.strip()):
            return cls.two_level(int(found[1]), int(found[2]), width)
        raise SettingsError(f"layout: {text!r}; write `5 choose 2` or `4 then 4`")

    def refuse_beyond(self, distance: int) -> None:
        """Raises SettingsError when pairs at that distance could be missed."""
        if distance > self.distance:
            raise SettingsError(
                f"distance: {distance}, but {self.name} finds every pair up to {self.distance} bits only"
            )


def _blocks(bits: list[int], count: int) -> list[list[int]]:
    small, wide = divmod(len(bits), count)
    blocks, start = [], 0
    for block in range(count):
        end = start + small + (block < wide)
        blocks.append(bits[start:end])
        start = end
    return blocks

"""Length-limited canonical Huffman codes.

Code lengths are found by package-merge (Larmore and Hirschberg, 1990), which is optimal among codes of at
most `longest` bits. Since codes are canonical, they are determined by their lengths.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.tables.arrays import U8

LONGEST: Final = 15
"""Longest code in bits. The decoding table has 2**LONGEST entries."""


def code_lengths(counts: NDArray[np.int64], longest: int = LONGEST) -> U8:
    """Code length in bits of each symbol, (s,); 0 if its count is 0. At most 2**longest symbols may occur."""
    used = np.flatnonzero(counts).tolist()
    lengths = np.zeros(len(counts), np.uint8)
    if len(used) == 1:
        lengths[used] = 1
        return lengths
    leaves: list[tuple[int, tuple[int, ...]]] = sorted((int(counts[symbol]), (symbol,)) for symbol in used)
    packages = leaves
    for _ in range(longest - 1):
        paired = [
            (packages[i][0] + packages[i + 1][0], packages[i][1] + packages[i + 1][1])
            for i in range(0, len(packages) - 1, 2)
        ]
        packages = sorted(leaves + paired)
    for _, symbols in packages[: 2 * len(used) - 2]:
        for symbol in symbols:
            lengths[symbol] += 1
    return lengths


def codes(lengths: U8) -> NDArray[np.uint64]:
    """The canonical code of each symbol, (s,), ascending by length, then by symbol."""
    words = np.zeros(len(lengths), np.uint64)
    code, previous = 0, 0
    for length, symbol in sorted((int(bits), symbol) for symbol, bits in enumerate(lengths) if bits):
        code <<= length - previous
        words[symbol] = code
        code, previous = code + 1, length
    return words


def decoding_table(lengths: U8) -> tuple[NDArray[np.uint8], U8]:
    """For each value of the next LONGEST bits, the symbol that they begin with and the length of its code;
    0 for no symbol.

    Raises ValueError if the lengths do not form a prefix code.
    """
    table, taken = np.zeros(1 << LONGEST, np.uint8), np.zeros(1 << LONGEST, np.uint8)
    if len(lengths) and int(lengths.max()) > LONGEST:
        raise ValueError(f"a code of {lengths.max()} bits; at most {LONGEST}")
    if sum(1 << (LONGEST - int(bits)) for bits in lengths if bits) > 1 << LONGEST:
        raise ValueError("the code lengths do not form a prefix code")
    for symbol, code in enumerate(codes(lengths).tolist()):
        bits = int(lengths[symbol])
        if bits:
            start = code << (LONGEST - bits)
            end = start + (1 << (LONGEST - bits))
            table[start:end], taken[start:end] = symbol, bits
    return table, taken

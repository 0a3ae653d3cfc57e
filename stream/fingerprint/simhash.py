"""SimHash of weighted features (Charikar, STOC 2002; Manku, Jain and Das Sarma, WWW 2007, section 2.1)."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

WIDTH: Final = 64
TIES: Final = 0x9E3779B97F4A7C15
"""Values of bits whose sums are 0: the golden ratio's digits, so that neither 0 nor 1 is preferred."""

_CHUNK: Final = 2048
"""Features summed at a time. Their bits as floats, 512 KiB, stay in the cache, and BLAS uses one thread."""
_FLOAT32_EXACT: Final = 2**24


def simhash(
    hashes: NDArray[np.uint64], weights: NDArray[np.int64], width: int = WIDTH, tie_word: int = TIES
) -> int:
    """Return the fingerprint of features with `hashes` and `weights` (n,).

    Hashes are (n,), of which the lowest `width` bits count, or (n, width / 64), most significant first. Bit i
    (of value 2**i) is 1 if sum i > 0, 0 if it is < 0, and bit i of `tie_word` if it is 0.
    """
    sums = bit_sums(hashes, weights, width)
    ones = int.from_bytes(np.packbits(sums > 0, bitorder="little").tobytes(), "little")
    ties = int.from_bytes(np.packbits(sums == 0, bitorder="little").tobytes(), "little")
    return ones | (ties & tie_word)


def signs(sums: NDArray[np.int64], tie_word: int) -> list[int]:
    """Return the results of `simhash` from the bit sums of several texts (texts, 64)."""
    ones = np.packbits(sums > 0, axis=1, bitorder="little").view("<u8").ravel()
    ties = np.packbits(sums == 0, axis=1, bitorder="little").view("<u8").ravel()
    words: list[int] = (ones | ties & np.uint64(tie_word)).tolist()
    return words


def bit_sums(hashes: NDArray[np.uint64], weights: NDArray[np.int64], width: int = WIDTH) -> NDArray[np.int64]:
    """For each bit, the sum of weights of features whose hash has the bit set, minus that of the others:
    (width,).

    Sums are in floats. These are exact, and so independent of order, while the weights of a chunk add up to
    less than 2**53. With 4096 per token that is 2**41 tokens, far more than fit in memory.
    """
    words = hashes[:, ::-1] if hashes.ndim == 2 else hashes[:, None]  # least significant first
    size = 8 * words.shape[1]
    ones = np.zeros(width, np.int64)
    little = np.ascontiguousarray(words, "<u8").view(np.uint8).ravel()
    total = 0
    for start in range(0, len(words), _CHUNK):
        part = weights[start : start + _CHUNK]
        weight = int(part.sum())
        kind = np.float32 if weight < _FLOAT32_EXACT else np.float64
        part_bytes = little[start * size : (start + _CHUNK) * size]
        bits = np.unpackbits(part_bytes, bitorder="little").reshape(-1, 8 * size)[:, :width]
        ones += (part.astype(kind) @ bits.astype(kind)).astype(np.int64)
        total += weight
    return 2 * ones - total

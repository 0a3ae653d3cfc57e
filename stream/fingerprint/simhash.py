"""Features -> 64-bit SimHash with its least certain bits (Charikar, STOC 2002; Manku, Jain and Das Sarma,
WWW 2007, section 2.1)."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.scheme import UNCERTAIN_BITS

WIDTH: Final = 64
TIES: Final = 0x9E3779B97F4A7C15
"""Bits of sums that are 0: the golden ratio's digits, so that neither 0 nor 1 is preferred."""

_CHUNK: Final = 2048
"""Features summed at once: their bits as floats, 512 KiB, stay in the cache, and BLAS keeps to one thread."""
_FLOAT32_EXACT: Final = 2**24


def simhash(hashes: NDArray[np.uint64], weights: NDArray[np.int64]) -> tuple[int, bytes]:
    """The fingerprint of features with those `hashes` (n,) and `weights` (n,), and its UNCERTAIN_BITS bit
    indexes with the smallest |sum|, least certain first (ties: lower index first).

    Bit i (of value 2**i) is 1 where sum i > 0, 0 where it is < 0, and bit i of TIES where it is 0.
    """
    sums = bit_sums(hashes, weights)
    ones = int.from_bytes(np.packbits(sums > 0, bitorder="little").tobytes(), "little")
    ties = int.from_bytes(np.packbits(sums == 0, bitorder="little").tobytes(), "little")
    order = np.argsort(np.abs(sums), kind="stable")
    return ones | (ties & TIES), order[:UNCERTAIN_BITS].astype(np.uint8).tobytes()


def bit_sums(hashes: NDArray[np.uint64], weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each bit, the weights of the features whose hash has it minus the weights of the others, (64,).

    Weights are added in floats, which is exact, hence the same in any order, while those of a chunk together
    stay below 2**53: at 4096 a token that is 2**41 tokens, and pages are bounded by memory long before.
    """
    ones = np.zeros(WIDTH, np.int64)
    little = np.ascontiguousarray(hashes, "<u8").view(np.uint8)
    total = 0
    for start in range(0, hashes.size, _CHUNK):
        part = weights[start : start + _CHUNK]
        weight = int(part.sum())
        kind = np.float32 if weight < _FLOAT32_EXACT else np.float64
        bits = np.unpackbits(little[start * 8 : (start + _CHUNK) * 8], bitorder="little").reshape(-1, WIDTH)
        ones += (part.astype(kind) @ bits.astype(kind)).astype(np.int64)
        total += weight
    return 2 * ones - total

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

_BYTES: Final = WIDTH // 8
_CHUNK: Final = 16_384
_OFFSETS: Final = np.arange(_BYTES, dtype=np.intp) * 256
# Row v has the bits of byte v, least significant first.
_BITS_OF_BYTE: Final = np.unpackbits(
    np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"
).astype(np.float64)


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

    Weights are added up by the value of each hash byte, then by bit. Both steps add in float64, which is
    exact, hence the same in any order, while the weights together stay below 2**53: at 4096 a token that is
    2**41 tokens, and pages are bounded by memory long before.
    """
    histogram = np.zeros(_BYTES * 256)
    little = hashes.astype("<u8", copy=False)
    for start in range(0, hashes.size, _CHUNK):
        part = np.ascontiguousarray(little[start : start + _CHUNK])
        cells = part.view(np.uint8).reshape(-1, _BYTES) + _OFFSETS
        shares = np.repeat(weights[start : start + _CHUNK].astype(np.float64), _BYTES)
        histogram += np.bincount(cells.ravel(), shares, histogram.size)
    ones = (histogram.reshape(_BYTES, 256) @ _BITS_OF_BYTE).astype(np.int64).ravel()
    return 2 * ones - int(weights.sum())

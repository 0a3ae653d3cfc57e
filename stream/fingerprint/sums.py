"""Token hashes of many texts -> bit sums: `features` and `simhash.bit_sums` of each, in one compiled loop."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled
from stream.fingerprint.weights import UNIT, weigh

WIDTH: Final = 64

_ONE: Final = np.uint64(1)
_BYTE: Final = np.uint64(255)
_EIGHT: Final = np.uint64(8)
_WEIGHTS: Final = weigh(np.arange(256))
"""Of features that occur so often."""
_SPREAD: Final = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(
    np.int32
)
"""Byte -> its bits, the lowest first (256, 8)."""
_FULL: Final = 1 << 30
"""Sums of 32 bits are carried over before they could pass this."""


def bit_sums_of_each(
    hashes: NDArray[np.uint64], bounds: NDArray[np.intp]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each text and bit, the weights of the features whose hash has it minus the weights of the others
    (texts, 64), and how many features the text has (texts,). Text i has the token hashes
    `hashes[bounds[i] : bounds[i + 1]]`."""
    largest = int((bounds[1:] - bounds[:-1]).max(initial=0))
    # Half of the slots stay empty, so a search for one ends soon.
    return _sums(hashes, bounds, 1 << (2 * largest).bit_length())


@compiled
def _sums(
    hashes: NDArray[np.uint64], bounds: NDArray[np.intp], slots: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    texts = len(bounds) - 1
    sums = np.zeros((texts, WIDTH), np.int64)
    features = np.zeros(texts, np.int64)
    mask = np.uint64(slots - 1)
    keys = np.empty(slots, np.uint64)
    counts = np.empty(slots, np.int64)
    owners = np.zeros(slots, np.int64)
    taken = np.empty(slots // 2 + 1, np.uint64)
    part = np.empty(WIDTH, np.int32)
    for text in range(texts):
        size = 0
        for token in range(bounds[text], bounds[text + 1]):
            key = hashes[token]
            slot = key & mask
            while owners[slot] == text + 1 and keys[slot] != key:
                slot = slot + _ONE & mask
            if owners[slot] == text + 1:
                counts[slot] += 1
                continue
            owners[slot], keys[slot], counts[slot] = text + 1, key, 1
            taken[size] = slot
            size += 1
        row = sums[text]
        part[:] = 0
        total = carried = np.int64(0)
        for i in range(size):
            slot = taken[i]
            count = counts[slot]
            weight = _WEIGHTS[count] if count < len(_WEIGHTS) else np.int64(np.rint(UNIT * np.sqrt(count)))
            if total + weight - carried > _FULL:
                for bit in range(WIDTH):
                    row[bit] += part[bit]
                part[:] = 0
                carried = total
            total += weight
            key = keys[slot]
            light = np.int32(weight)
            for byte in range(8):
                bits = _SPREAD[np.int64(key & _BYTE)]
                key >>= _EIGHT
                for bit in range(8):
                    part[8 * byte + bit] += bits[bit] * light
        for bit in range(WIDTH):
            row[bit] = 2 * (row[bit] + part[bit]) - total
        features[text] = size
    return sums, features

"""The bit sums of many texts in a compiled loop: `features` and `simhash.bit_sums` of each.

This loop is for token hashes with the default weights. `simhash.bit_sums` takes any weights and widths,
serves a single page without the import of the compiler (0.6 s), and a long text with less memory.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled
from stream.fingerprint.default_weights import MOST_COUNTED, weigh

WIDTH: Final = 64

_NONE: Final = np.uint64(0)
_ONE: Final = np.uint64(1)
_COUNTED: Final = MOST_COUNTED
_WEIGHTS: Final = weigh(np.arange(_COUNTED + 1))
"""Weights of features by their counts; larger counts weigh as much as the last one."""
_PLANES: Final = 40
"""Binary digits of a bit-parallel count."""


def bit_sums_of_each(
    hashes: NDArray[np.uint64], bounds: NDArray[np.intp]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the bit sums of each text (texts, 64), as in `simhash.bit_sums`, and its number of distinct
    features (texts,). Text i has the token hashes `hashes[bounds[i] : bounds[i + 1]]`."""
    largest = int((bounds[1:] - bounds[:-1]).max(initial=0))
    # At least half of the slots stay empty, which keeps probe sequences short.
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
    words = np.empty(slots // 2 + 8, np.uint64)
    for text in range(texts):
        size = 0
        for token in range(bounds[text], bounds[text + 1]):
            key = hashes[token]
            slot = key & mask
            while owners[slot] == text + 1 and keys[slot] != key:
                slot = slot + _ONE & mask
            if owners[slot] == text + 1:
                counts[slot] = min(counts[slot] + 1, _COUNTED)
                continue
            owners[slot], keys[slot], counts[slot] = text + 1, key, 1
            taken[size] = slot
            size += 1
        row = sums[text]
        total = np.int64(0)
        for count in range(1, _COUNTED + 1):
            same = 0
            for i in range(size):
                words[same] = keys[taken[i]]
                same += counts[taken[i]] == count
            words[same : same + 8] = _NONE
            _add_counted(words, same, _WEIGHTS[count], row)
            total += same * _WEIGHTS[count]
        for bit in range(WIDTH):
            row[bit] = 2 * row[bit] - total
        features[text] = size
    return sums, features


@compiled
def _add_counted(words: NDArray[np.uint64], size: int, weight: np.int64, row: NDArray[np.int64]) -> None:
    """Add `weight` to the sum of each bit, times the number of the `size` hashes that have it set. Eight
    zeros follow the hashes.

    All 64 counts are kept in parallel, as bit planes: eight hashes are added by seven carry-save adders
    (Harley and Seal; Warren, Hacker's Delight, section 5-1).
    """
    planes = np.zeros(_PLANES, np.uint64)
    ones = twos = fours = _NONE
    highest = 3
    for i in range(0, size, 8):
        two_a, ones = _carry(ones, words[i], words[i + 1])
        two_b, ones = _carry(ones, words[i + 2], words[i + 3])
        four_a, twos = _carry(twos, two_a, two_b)
        two_a, ones = _carry(ones, words[i + 4], words[i + 5])
        two_b, ones = _carry(ones, words[i + 6], words[i + 7])
        four_b, twos = _carry(twos, two_a, two_b)
        eights, fours = _carry(fours, four_a, four_b)
        plane = 3
        while eights:
            planes[plane], eights = planes[plane] ^ eights, planes[plane] & eights
            plane += 1
        highest = max(highest, plane)
    planes[0], planes[1], planes[2] = ones, twos, fours
    counts = np.zeros(WIDTH, np.int64)
    for plane in range(highest):
        for bit in range(WIDTH):
            counts[bit] += np.int64(planes[plane] >> np.uint64(bit) & _ONE) << plane
    for bit in range(WIDTH):
        row[bit] += counts[bit] * weight


@compiled
def _carry(a: np.uint64, b: np.uint64, c: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Add three words by a carry-save adder: return carries and sums of the three bits at each position."""
    either = a ^ b
    return a & b | either & c, either ^ c

"""The ball of a fingerprint: all fingerprints within a Hamming distance of it."""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import Final

import numpy as np

from stream.errors import SettingsError
from stream.fingerprint.lanes import WORD, words_of
from stream.tables.arrays import U64

MOST_MEMBERS: Final = 1 << 22
"""Largest ball that is enumerated."""
_FOLD: Final = np.uint64(0x9E3779B97F4A7C15)


def ball_size(width: int, distance: int) -> int:
    """Number of fingerprints within the distance of one: 43 745 for 64 bits and distance 3."""
    return sum(comb(width, flipped) for flipped in range(distance + 1))


def ball_masks(width: int, distance: int) -> U64:
    """Masks whose XOR with a fingerprint gives its ball, (ball_size, lanes). Raises SettingsError for a ball
    of more than MOST_MEMBERS."""
    members = ball_size(width, distance)
    if members > MOST_MEMBERS:
        raise SettingsError(
            f"distance: the ball of {distance} bits in {width} has {members:,} members;"
            f" at most {MOST_MEMBERS:,} are enumerated"
        )
    lanes = words_of(width)
    single = np.zeros((width, lanes), np.uint64)
    bits = np.arange(width)
    single[bits, lanes - 1 - bits // WORD] = np.uint64(1) << (bits % WORD).astype(np.uint64)
    parts = [np.zeros((1, lanes), np.uint64)]
    for flipped in range(1, distance + 1):
        chosen = np.array(list(combinations(range(width), flipped)), np.int16)
        parts.append(np.bitwise_xor.reduce(single[chosen], axis=1))
    return np.concatenate(parts)


def folded(words: U64) -> U64:
    """A 64-bit key of each fingerprint, (n,): itself, or a hash of a wider one."""
    if words.shape[1] == 1:
        return words[:, 0]
    return words[:, 0] ^ (words[:, 1] * _FOLD)

"""Interpolation search: where a value stands in a sorted array, guessed from its size.

Fingerprints are spread evenly, so about log2 log2 n guesses are needed instead of log2 n halvings (the paper,
section 3). Guesses of many values are made together; a value that is not found after `ROUNDS` of them, since
the values are not spread evenly there, is left to binary search.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from stream.tables.arrays import I64, U64

ROUNDS: Final = 12


def interpolate(ascending: U64, wanted: U64) -> tuple[I64, int]:
    """What `ascending.searchsorted(wanted)` gives, (n,), and how many values were read for it."""
    size = len(ascending)
    answer = np.zeros(len(wanted), np.int64)
    if not size:
        return answer, 0
    # ascending[low] < wanted <= ascending[high] holds for everyone still searched for.
    answer[wanted > ascending[-1]] = size
    open_ = np.flatnonzero((wanted > ascending[0]) & (wanted <= ascending[-1]))
    low, high = np.zeros(len(open_), np.int64), np.full(len(open_), size - 1)
    value_low = np.full(len(open_), ascending[0])
    value_high = np.full(len(open_), ascending[-1])
    value = wanted[open_]
    read = 0
    for _ in range(ROUNDS):
        done = high - low == 1
        if done.any():
            answer[open_[done]] = high[done]
            keep = ~done
            open_, low, high, value = open_[keep], low[keep], high[keep], value[keep]
            value_low, value_high = value_low[keep], value_high[keep]
        if not len(open_):
            return answer, read
        share = (value - value_low).astype(np.float64) / (value_high - value_low).astype(np.float64)
        # Half a step aside, so that the far end comes nearer as well.
        span = (high - low).astype(np.float64)
        lean = np.where(share < 0.5, 1, -1) * np.sqrt(span) * 0.5
        guess = low + np.clip((share * span + lean).astype(np.int64), 1, high - low - 1)
        there = ascending.take(guess)
        read += len(guess)
        below = there < value
        low, high = np.where(below, guess, low), np.where(below, high, guess)
        value_low, value_high = np.where(below, there, value_low), np.where(below, value_high, there)
    answer[open_] = ascending.searchsorted(value)
    return answer, read + len(open_) * int(size).bit_length()

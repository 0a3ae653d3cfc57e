"""Interpolation search: the position of a value in a sorted array is estimated from the value.

Fingerprints are uniformly distributed, so it takes about log2 log2 n estimates instead of the log2 n steps of
a binary search (the paper, section 3). Many values are searched in parallel. A value that is not found after
`ROUNDS` estimates, because the values around it are not uniform, is found by binary search.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from stream.tables.arrays import I64, U64

ROUNDS: Final = 12


def interpolate(ascending: U64, wanted: U64) -> tuple[I64, int]:
    """The result of `ascending.searchsorted(wanted)`, (n,), and the number of values read."""
    size = len(ascending)
    answer = np.zeros(len(wanted), np.int64)
    if not size:
        return answer, 0
    # Invariant: ascending[low] < wanted <= ascending[high].
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
        # Bias the estimate towards the middle, so that the far bound moves as well.
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

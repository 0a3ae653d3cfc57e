"""The arrays that tables are made of, and what is done to them in many places."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]
Number = TypeVar("Number", np.int64, np.uint64)


def distinct(values: NDArray[Number]) -> NDArray[Number]:
    """The values in ascending order, each once.

    NumPy 2.4's `unique` hashes: on 8 M values that repeat as spam's do, 6.3 s against 0.18 s.
    """
    if values.dtype == np.int64 and len(values):
        first = values.min()
        span = int(values.max() - first) + 1
        if span <= len(values):  # spam's, again
            there = np.zeros(span, np.bool_)
            there[values - first] = True
            found: NDArray[Number] = np.flatnonzero(there) + first
            return found
    ranked = np.sort(values)
    keep = np.ones(len(ranked), bool)
    keep[1:] = ranked[1:] != ranked[:-1]
    return ranked[keep]


def expand(starts: I64, lengths: I64) -> tuple[I64, I64]:
    """Positions `starts[i] .. starts[i] + lengths[i]` of all i, one after the other, and the i of each."""
    total = int(lengths.sum())
    source = np.repeat(np.arange(len(lengths)), lengths)
    before = np.cumsum(lengths) - lengths
    return np.arange(total) + (starts - before).take(source), source

"""Array types of the tables, and common operations on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

I16 = NDArray[np.int16]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]
U16 = NDArray[np.uint16]
U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]
Number = TypeVar("Number", np.int64, np.uint64)


def distinct(values: NDArray[Number]) -> NDArray[Number]:
    """The distinct values, ascending.

    NumPy 2.4's `unique` uses a hash table. On 8 M values with as many duplicates as spam has, it takes 6.3 s;
    this takes 0.18 s.
    """
    if values.dtype == np.int64 and len(values):
        first = values.min()
        span = int(values.max() - first) + 1
        if span <= len(values):  # dense values, as with spam
            there = np.zeros(span, np.bool_)
            there[values - first] = True
            places: NDArray[Number] = np.flatnonzero(there) + first
            return places
    ranked = np.sort(values)
    keep = np.ones(len(ranked), bool)
    keep[1:] = ranked[1:] != ranked[:-1]
    return ranked[keep]


def is_among(values: U8, codes: Sequence[int]) -> NDArray[np.bool_]:
    """Return which values are one of a few codes. For 32,768 values `np.isin` takes 60 times as long."""
    matching: NDArray[np.bool_] = np.logical_or.reduce([values == code for code in codes])
    return matching

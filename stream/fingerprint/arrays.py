"""Fingerprints of any width as uint64 arrays: (n,) for up to 64 bits, (n, 2) for 128, upper half first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.row import WORD

_MASK: Final = (1 << WORD) - 1


def as_column(fingerprints: Sequence[int], width: int) -> NDArray[np.uint64]:
    """Return an array of fingerprints of `width` bits."""
    if width <= WORD:
        return np.array(fingerprints, np.uint64)
    words = [(each >> WORD, each & _MASK) for each in fingerprints]
    return np.array(words, np.uint64).reshape(len(words), 2)


def integers(fingerprints: NDArray[np.uint64]) -> list[int]:
    """Return the fingerprints of an array as integers."""
    values: list[Any] = fingerprints.tolist()
    return values if fingerprints.ndim == 1 else [upper << WORD | lower for upper, lower in values]


def first_words(fingerprints: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the fingerprints, or the upper 64 bits of wider ones (n,), whose distances are lower bounds."""
    return fingerprints if fingerprints.ndim == 1 else fingerprints[:, 0].copy()


def distances(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Return the Hamming distances of n pairs, (n,). `a` or `b` may be a single row."""
    differing: NDArray[np.uint8] = np.bitwise_count(a ^ b)
    return differing if differing.ndim == 1 else np.asarray(differing.sum(axis=1, dtype=np.uint8))


def among(values: NDArray[np.uint8], codes: Sequence[int]) -> NDArray[np.bool_]:
    """Return which values are one of a few codes. For 32,768 values `np.isin` takes 60 times as long."""
    matching: NDArray[np.bool_] = np.logical_or.reduce([values == code for code in codes])
    return matching

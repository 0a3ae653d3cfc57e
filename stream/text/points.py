"""The texts of a batch as one array of code points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

NUL = "\0"
"""Ends each text. It is no word character, so a NUL within a text does no harm."""
SPACE: Final = 0x20


class Points(NamedTuple):
    """Normalised texts. Text i is `points[bounds[i] : bounds[i + 1] - 1]`."""

    points: NDArray[np.uint8] | NDArray[np.uint32]
    """Code points of all texts, concatenated, with a NUL after each (c,). uint8 if all are ASCII."""
    bounds: NDArray[np.intp]
    """(texts + 1,)"""


def points_of(texts: Sequence[str]) -> Points:
    """The code points of texts that are normalised already."""
    together = NUL.join([*texts, ""])
    bounds = bounds_of([len(text) + 1 for text in texts])
    if together.isascii():
        return Points(np.frombuffer(together.encode(), np.uint8), bounds)
    return Points(utf32(together), bounds)


def bounds_of(sizes: Sequence[int]) -> NDArray[np.intp]:
    """Start offsets of consecutive items of these sizes, and the end of the last (sizes + 1,)."""
    return np.cumsum([0, *sizes], dtype=np.intp)


def utf32(text: str) -> NDArray[np.uint32]:
    """The code points of a text without lone surrogates (n,)."""
    return np.frombuffer(text.encode("utf-32-le"), "<u4").astype(np.uint32)

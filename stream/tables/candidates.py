"""What a search answers, and how the tiers' findings become one answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from stream.tables.design import U64

if TYPE_CHECKING:
    from stream.tables.probing import Probing

Number = TypeVar("Number", np.int64, np.uint64)

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

LAST_ANCHOR: Final = (1 << 32) - 2
"""The highest anchor number: chains store number + 1 in 32 bits."""


def distinct(values: NDArray[Number]) -> NDArray[Number]:
    """The values in ascending order, each once.

    NumPy 2.4's `unique` hashes: on 8 M values that repeat as spam's do, 6.3 s against 0.18 s.
    """
    ranked = np.sort(values)
    keep = np.ones(len(ranked), bool)
    keep[1:] = ranked[1:] != ranked[:-1]
    return ranked[keep]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Distinct (row, anchor) pairs, sorted by row, then anchor."""

    row: I64
    """Index of the searched fingerprint."""
    anchor: I64
    """Number of a live anchor that entered one of the buckets probed for that row."""
    distance: U8
    """Their Hamming distance."""
    bucket_sizes: NDArray[np.uint32] | None
    """Live anchors that entered each row's exact bucket, shape (n, T), before this search's own rows; exact.
    None without a bucket cap."""
    probed: list[Probing]
    """The buckets looked into: of the first rows, of the next, and so on."""


class Found:
    """Pairs in the order they turn up, one pair perhaps many times over."""

    def __init__(self) -> None:
        self._packed: list[U64] = []

    def add_packed(self, pairs: U64) -> None:
        """As row << 40 | anchor << 8 | distance; row < 2**24."""
        self._packed.append(pairs)

    def pairs(self) -> tuple[I64, I64, U8]:
        """Distinct pairs, sorted by row, then anchor; they are taken out."""
        packed = distinct(np.concatenate(self._packed)) if self._packed else np.zeros(0, np.uint64)
        self._packed = []
        return (
            (packed >> np.uint64(40)).astype(np.int64),
            (packed >> np.uint64(8) & np.uint64(0xFFFFFFFF)).astype(np.int64),
            (packed & np.uint64(0xFF)).astype(np.uint8),
        )


def expand(starts: I64, lengths: I64) -> tuple[I64, I64]:
    """Positions `starts[i] .. starts[i] + lengths[i]` of all i, one after the other, and the i of each."""
    total = int(lengths.sum())
    source = np.repeat(np.arange(len(lengths)), lengths)
    before = np.cumsum(lengths) - lengths
    return np.arange(total) + (starts - before).take(source), source

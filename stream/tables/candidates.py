"""What a search answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream.tables.arrays import I64, U8
from stream.tables.probing import Probing


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

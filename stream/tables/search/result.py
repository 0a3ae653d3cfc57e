"""The result of a search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream.tables.arrays import I64, U8
from stream.tables.search.probing import Probing


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Distinct (row, anchor) pairs, sorted by row, then anchor."""

    row: I64
    """Index of the query."""
    anchor: I64
    """Number of a live anchor in one of the buckets probed for that row."""
    distance: U8
    """Their Hamming distance."""
    bucket_sizes: NDArray[np.uint32] | None
    """Exact number of live anchors in each row's exact bucket, shape (n, T), not counting the rows of this
    search. None without a bucket cap."""
    probed: list[Probing]
    """The buckets that were probed, one entry per part of the rows, in order."""

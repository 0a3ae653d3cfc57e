"""The result of a search."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.tables.arrays import I64, U8
from stream.tables.search.probing import Probing


class ProbedTriples(NamedTuple):
    """The triples into which rows look, m pairs of a row and a triple."""

    row: I64
    triple: I64
    """From 0 on."""
    sizes: I64
    """Live anchors in each; shape (0,) if they are not counted."""

    @classmethod
    def none(cls) -> ProbedTriples:
        """No row looks into any."""
        return cls(*np.zeros((3, 0), np.int64))

    @classmethod
    def joined(cls, parts: Iterable[tuple[int, ProbedTriples]]) -> ProbedTriples:
        """Those of parts of the rows, each with the number of its first row."""
        columns = [(part.row + first, part.triple, part.sizes) for first, part in parts]
        return cls(*(np.concatenate([of[i] for of in columns]) for i in range(3)))


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
    triples: ProbedTriples
    probed: list[Probing]
    """The buckets that were probed, one entry per part of the rows, in order."""

"""The result of a search."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.tables.arrays import I64, U8, U64
from stream.tables.search.pair_collector import ordered_pairs


class ProbedReserves(NamedTuple):
    """Which of n rows look into their reserves, and what is there."""

    further: NDArray[np.bool_]
    """(n,): whether a row looks there, as an anchor stayed out of one of its first pairs."""
    rows: I64
    """(r,), ascending: the rows whose reserves were searched. Others of them may look there if an anchor of
    their own batch stays out of a first pair."""
    sizes: I64
    """(r, reserves): live anchors in each of their reserves."""

    @classmethod
    def none(cls, rows: int) -> ProbedReserves:
        """No row looks into any."""
        return cls(np.zeros(rows, np.bool_), *np.zeros((2, 0), np.int64))

    @classmethod
    def joined(cls, parts: Iterable[tuple[int, ProbedReserves]]) -> ProbedReserves:
        """Those of parts of the rows, each with the number of its first row."""
        parts = list(parts)
        searched = [part.sizes for _, part in parts if len(part.rows)]
        return cls(
            np.concatenate([part.further for _, part in parts]),
            np.concatenate([part.rows + first for first, part in parts]),
            np.concatenate(searched) if searched else np.zeros((0, 0), np.int64),
        )


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Distinct (row, anchor) pairs, sorted by row, then anchor."""

    row: I64
    """Index of the query."""
    anchor: I64
    """Number of a live anchor in one of the buckets searched for that row."""
    distance: U8
    """Their Hamming distance."""
    reserve: NDArray[np.bool_]
    """Whether they share reserves alone, so that they meet only if the row looks there."""
    bucket_sizes: I64 | None
    """Exact number of live anchors in each row's exact bucket, shape (n, T), not counting the rows of this
    search. None without a bucket cap."""
    reserves: ProbedReserves

    @classmethod
    def joined(cls, parts: Sequence[tuple[int, SearchResult]]) -> SearchResult:
        """The result of parts of the rows, each with the number of its first row."""
        if len(parts) == 1:
            return parts[0][1]
        sizes = [part.bucket_sizes for _, part in parts if part.bucket_sizes is not None]
        return cls(
            np.concatenate([part.row + first for first, part in parts]),
            np.concatenate([part.anchor for _, part in parts]),
            np.concatenate([part.distance for _, part in parts]),
            np.concatenate([part.reserve for _, part in parts]),
            np.concatenate(sizes) if sizes else None,
            ProbedReserves.joined((first, part.reserves) for first, part in parts),
        )


def merged(
    pairs: tuple[I64, I64, U8], of_reserves: U64, first: int
) -> tuple[I64, I64, U8, NDArray[np.bool_]]:
    """Distinct pairs, sorted, and those in reserves, packed as in `PairCollector` relative to the anchor
    `first`, as such pairs: rows, anchors and distances, and which of them are in reserves alone."""
    further = ordered_pairs(of_reserves, first)
    row, anchor = np.concatenate([pairs[0], further[0]]), np.concatenate([pairs[1], further[1]])
    distance = np.concatenate([pairs[2], further[2]])
    # Stable: of equal pairs, the one that is not in reserves comes first.
    order = np.argsort(row << 32 | (anchor - first), kind="stable")
    row, anchor = row[order], anchor[order]
    new = np.ones(len(row), np.bool_)
    new[1:] = (row[1:] != row[:-1]) | (anchor[1:] != anchor[:-1])
    order = order[new]
    return row[new], anchor[new], distance[order], order >= len(pairs[0])

"""What compiled loops of the tiers are given: the queries of a search, and what it looks for."""

from __future__ import annotations

from typing import NamedTuple

from stream.tables.arrays import I64, U8, U64


class Queries(NamedTuple):
    """n queries, each of which probes T buckets."""

    keys: U64
    """(n, T): keys of the buckets."""
    rows: I64
    """(n,): the row of each query, as in pairs."""
    fingerprints: U64
    """(n,): what distances are between."""
    sizes: I64
    """(n * T,): live anchors found so far in each bucket, at query * T + place of its key. Shape (0,) if they
    are not counted."""


class Criteria(NamedTuple):
    """Which anchors a search finds, and when it stops."""

    distance: int
    """Largest distance from the query."""
    dead: U8
    """Bitmap of anchors that are not counted in `Queries.sizes` (see `NumberSet.bits`)."""
    enough: int
    """A loop may stop once it has found so many pairs."""

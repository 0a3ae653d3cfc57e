"""What compiled loops of the tiers are given: the queries of a search, and what it looks for."""

from __future__ import annotations

from typing import NamedTuple

from stream.tables.arrays import I64, U8, U64


class Queries(NamedTuple):
    """n queries in T tables, each of which a query probes at one bucket."""

    words: U64
    """(n, W): what tables are indexed by."""
    fingerprints: U64
    """(n,): what distances are between."""
    keys: U64
    """(n, T): keys of the buckets."""
    sizes: I64
    """(n * T,): live anchors found so far in each bucket, at row * T + table. Shape (0,) if they are
    not counted."""


class Criteria(NamedTuple):
    """Which anchors a search finds, and when it stops."""

    distance: int
    """Largest distance from the query."""
    dead: U8
    """Bitmap of anchors that are not counted in `Queries.sizes` (see `NumberSet.bits`)."""
    enough: int
    """A loop may stop once it has found so many pairs."""

"""The state of one search: queries that are passed through the tiers."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from stream.tables.arrays import I64, U8, U64
from stream.tables.search.pair_collector import PairCollector
from stream.tables.search.queries import Criteria, Queries


class SearchOptions(NamedTuple):
    """How tables are searched."""

    distance: int
    """Largest distance of a candidate."""
    cap: int | None
    """Bucket cap. Without one, bucket sizes are not counted."""


class Probing:
    """Queries, and the pairs found for them so far."""

    def __init__(
        self,
        keys: U64,
        rows: I64,
        fingerprints: U64,
        options: SearchOptions,
        dead: U8,
        collector: PairCollector,
    ) -> None:
        """The first three are as in `Queries`; `dead` is that of `Criteria`."""
        sizes = np.zeros(0 if options.cap is None else keys.size, np.int64)
        self.queries: Final = Queries(keys, rows, fingerprints, sizes)
        self.collector: Final = collector
        self._distance, self._dead = options.distance, dead

    @property
    def first(self) -> int:
        """Number of the index's first anchor. In pairs and in compiled loops, numbers are relative to
        it, and so have 32 bits."""
        return self.collector.first

    @property
    def criteria(self) -> Criteria:
        """What the rest of this search finds, as a tier's loop takes it."""
        return Criteria(self._distance, self._dead, self.collector.room)

    @property
    def sizes(self) -> I64:
        """The live anchors in each bucket (n, T), if they are counted."""
        return self.queries.sizes.reshape(-1, self.queries.keys.shape[1])

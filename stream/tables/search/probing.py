"""The state of one search: a batch of queries that is passed through the tiers."""

from __future__ import annotations

import sys
from typing import Final, NamedTuple

import numpy as np

from stream.tables.arrays import U8, U64
from stream.tables.design import Design
from stream.tables.search.pair_collector import PairCollector
from stream.tables.search.prefixes_compiled import keys_of
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
        design: Design,
        words: U64,
        fingerprints: U64,
        options: SearchOptions,
        collector: PairCollector | None = None,
    ) -> None:
        self.design: Final = design
        words = words if words.ndim == 2 else words[:, None]
        keys = keys_of(words, design.pieces)
        self.queries: Final = Queries(
            words=words,
            fingerprints=fingerprints,
            keys=keys,
            sizes=np.zeros(0 if options.cap is None else keys.size, np.int64),
        )
        self.collector: Final = collector or PairCollector(sys.maxsize)

    @property
    def first(self) -> int:
        """Number of the index's first anchor. In pairs and in compiled loops, numbers are relative to
        it, and so have 32 bits."""
        return self.collector.first

    def criteria(self, distance: int, dead: U8) -> Criteria:
        """What the rest of this search finds, as a tier's loop takes it."""
        return Criteria(distance, dead, self.collector.room)

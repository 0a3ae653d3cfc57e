"""The state of one search: a batch of queries that is passed through the tiers."""

from __future__ import annotations

import sys
from typing import Final, NamedTuple

import numpy as np

from stream.tables.arrays import I64, U8, U64
from stream.tables.design import Design
from stream.tables.search.pair_collector import MOST_ANCHORS, PairCollector
from stream.tables.search.prefixes_compiled import LISTED_BITS, keys_of, uncertain_bits
from stream.tables.search.probes import probe_tree
from stream.tables.search.queries import Criteria, Queries
from stream.tables.search.rank import RANKS

_NONE: Final = np.zeros(0, np.int64)
_NO_BOUNDS: Final = np.zeros((0, 2), np.int64)


class Nearest(NamedTuple):
    """A limit on the candidates of a row that has very many: the live anchors of the least rank, of those of
    equal rank the oldest."""

    most: int
    """Number of candidates wanted per row."""
    within: I64
    """The largest distance at which an anchor counts, for each row (n,)."""
    mortal: I64
    """Numbers of the anchors that die within this batch (k,), ascending. Relative to the first anchor once a
    search has begun, as in the bounds."""
    dies: I64
    """The row from which on each of them is dead (k,)."""
    page: I64 = _NONE
    """The page of each row (n,); rows of one page share the limit. (0,) before a search begins."""
    bounds: I64 = _NO_BOUNDS
    """What is left of the limit as the search goes on: of a page's candidates, those count that are of less
    than its first bound as rank, or of that rank and not beyond its second one as number (pages, 2)."""

    def rows_of(self, anchors: I64, alive: int) -> I64:
        """Return the row from which on each of m anchors is dead, `alive` for those that do not die."""
        rows: I64 = np.full(len(anchors), alive)
        if len(self.mortal):
            place = np.searchsorted(self.mortal, anchors)
            dead = self.mortal.take(place, mode="clip") == anchors
            rows[dead] = self.dies[place[dead]]
        return rows

    def from_row(self, row: int) -> Nearest:
        """The same limit, with rows counted from `row` on."""
        return self._replace(within=self.within[row:], dies=self.dies - row) if row else self

    def begun(self, rows: int, first: int) -> Nearest:
        """The limit at the beginning of a search for so many rows, which are of as many pages, among the
        anchors from `first` on."""
        bounds = np.full((rows, 2), MOST_ANCHORS)
        bounds[:, 0] = RANKS - 1
        return self._replace(mortal=self.mortal - first, page=np.arange(rows), bounds=bounds)


ALL: Final = Nearest(sys.maxsize, *np.zeros((3, 0), np.int64))


class SearchOptions(NamedTuple):
    """How tables are searched."""

    flip_bits: int
    """Least certain bits of each prefix that may be flipped."""
    flips: int
    """Most of them that a probe flips."""
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
        uncertain: U8,
        options: SearchOptions,
        collector: PairCollector | None = None,
        nearest: Nearest = ALL,
    ) -> None:
        # Copies read-only arrays, as those of queries, for which the loop would be compiled once more.
        uncertain = np.require(uncertain, requirements=("C", "W"))
        flipped = options.flip_bits if options.flips else 0
        if flipped:
            _refuse_others(uncertain, len(design.block_of_bit))
        self.design: Final = design
        words = words if words.ndim == 2 else words[:, None]
        keys = keys_of(words, design.pieces)
        self.queries: Final = Queries(
            words=words,
            fingerprints=fingerprints,
            keys=keys,
            bits=uncertain_bits(design.block_of_bit, design.subsets, uncertain, flipped),
            key_flip=design.key_flip,
            tree=probe_tree(flipped, options.flips if flipped else 0),
            sizes=np.zeros(0 if options.cap is None else keys.size, np.int64),
        )
        self.collector: Final = collector or PairCollector(sys.maxsize)
        self.nearest: Final = nearest

    @property
    def first(self) -> int:
        """Number of the index's first anchor. In `nearest`, in pairs and in compiled loops, numbers are
        relative to it, and so have 32 bits."""
        return self.collector.first

    def criteria(self, distance: int, dead: U8) -> Criteria:
        """What the rest of this search finds, as a tier's loop takes it."""
        return Criteria(distance, dead, self.collector.room)


def _refuse_others(uncertain: U8, width: int) -> None:
    """Raise ValueError for too many listed bits, or for one beyond the width."""
    listed, highest = uncertain.shape[1], int(uncertain.max(initial=0))
    if highest >= width or listed > LISTED_BITS:
        raise ValueError(
            f"uncertain bits: {listed} are listed, at most {LISTED_BITS} are allowed; "
            f"the highest is {highest}, but must be below {width}"
        )

"""The state of one search: a batch of queries that is passed through the tiers."""

from __future__ import annotations

import sys
from typing import Final, NamedTuple

import numpy as np

from stream.tables.arrays import I64, U8, U64
from stream.tables.design import Design
from stream.tables.pair_collector import PairCollector
from stream.tables.prefixes_compiled import LISTED_BITS, keys_of, uncertain_bits
from stream.tables.probes import probe_tree


class Nearest(NamedTuple):
    """A limit on the candidates of a row that has very many: the nearest live anchors, of equally near ones
    the oldest."""

    most: int
    """Number of candidates wanted per row."""
    mortal: I64
    """Numbers of the anchors that die within this batch (k,), ascending."""
    dies: I64
    """The row from which on each of them is dead (k,)."""

    def from_row(self, row: int) -> Nearest:
        """The same limit, with rows counted from `row` on."""
        return self._replace(dies=self.dies - row) if row and len(self.dies) else self


ALL: Final = Nearest(sys.maxsize, np.zeros(0, np.int64), np.zeros(0, np.int64))


class Probing:
    """Queries with their words, bucket keys, flipped bits and fingerprints, and the pairs found so far."""

    def __init__(
        self,
        design: Design,
        words: U64,
        fingerprints: U64,
        uncertain: U8,
        flip_bits: int,
        flips: int,
        counted: bool,
        most: int = sys.maxsize,
        nearest: Nearest = ALL,
    ) -> None:
        # Copies read-only arrays, as those of queries, for which the loop would be compiled once more.
        uncertain = np.require(uncertain, requirements=("C", "W"))
        flipped = flip_bits if flips else 0
        if flipped:
            _refuse_others(uncertain, design.width)
        self.design: Final = design
        self.words: Final = words
        self.fingerprints: Final = fingerprints
        self.keys: Final = keys_of(words, *design.pieces)
        self.bits: Final[U8] = uncertain_bits(design.block_of_bit, design.subsets, uncertain, flipped)
        """Uncertain bits within each prefix, shape (flip_bits, n, T)."""
        self.tree: Final = probe_tree(flipped, flips if flipped else 0)
        self.found: Final = PairCollector(most)
        self.nearest: Final = nearest
        self.sizes: Final[I64 | None] = np.zeros(self.keys.size, np.int64) if counted else None
        """Number of live anchors found so far in each exact bucket, at row * T + table."""


def _refuse_others(uncertain: U8, width: int) -> None:
    """Raise ValueError for too many listed bits, or for one beyond the width."""
    listed, highest = uncertain.shape[1], int(uncertain.max(initial=0))
    if highest >= width or listed > LISTED_BITS:
        raise ValueError(
            f"uncertain bits: {listed} are listed, at most {LISTED_BITS} are allowed; "
            f"the highest is {highest}, but must be below {width}"
        )

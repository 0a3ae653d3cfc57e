"""One batch of rows on its way through the tiers."""

from __future__ import annotations

from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.tables.candidates import I64, Found
from stream.tables.design import U64, Design
from stream.tables.probes import probe_tree, uncertain_bits
from stream.tables.slots import U32

U8 = NDArray[np.uint8]


class Probing:
    """Words of the tables, their keys and flips, fingerprints, and what was found so far.

    A *cell* is a (row, table): `row * T + table`. A *probe* is `p * n * T + cell`; p = 0 is exact, so the
    exact probes of a batch are the numbers below n * T.
    """

    def __init__(
        self,
        design: Design,
        words: U64,
        fingerprints: U64,
        uncertain: U8,
        flip_bits: int,
        flips: int,
        counted: bool,
    ) -> None:
        self.design: Final = design
        self.words: Final = words
        self.fingerprints: Final = fingerprints
        self.keys: Final = design.keys(words)
        self.flips: Final = flips if flip_bits else 0
        self.bits: Final[U8] = uncertain_bits(design, uncertain, flip_bits if flips else 0)
        """Shape (flip_bits, n, T)."""
        self.tree: Final = probe_tree(len(self.bits), self.flips)
        self.cells: Final = self.keys.size
        self.found: Final = Found()
        self.sizes: Final[I64 | None] = np.zeros(self.cells, np.int64) if counted else None
        """Live anchors in each cell's exact bucket, so far."""
        chosen = [
            list(choice) + [len(self.bits)] * (self.flips - len(choice))
            for flipped in range(self.flips + 1)
            for choice in combinations(range(len(self.bits)), flipped)
        ]
        self._chosen = np.array(chosen, np.int64).reshape(len(chosen), self.flips)

    def cells_of(self, probes: U32) -> U32:
        """The cell of each probe."""
        cells = probes // np.uint32(self.cells)
        cells *= np.uint32(self.cells)
        np.subtract(probes, cells, out=cells)
        return cells

    def flipped(self, probes: U32, cells: U32, masks: U64) -> U64:
        """XOR of what `masks` has for the bits each probe flips: shape (width + 1,) or (width + 1, T)."""
        total = np.zeros(len(probes), np.uint64)
        far = int(np.searchsorted(probes, self.cells))  # probes ascend: the exact ones come first
        if far == len(probes):
            return total
        choice = self._chosen[probes[far:] // np.uint32(self.cells)]
        cells = cells[far:]
        bits = np.concatenate(
            [self.bits.reshape(len(self.bits), -1), np.full((1, self.cells), self.design.width, np.uint8)]
        )
        for flip in range(self.flips):
            bit = bits[choice[:, flip], cells]
            if masks.ndim == 1:
                total[far:] ^= masks[bit]
            else:
                total[far:] ^= masks[bit, cells % np.uint32(self.design.tables)]
        return total

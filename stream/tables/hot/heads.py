"""The hash tables of the hot tier: a head per chain of anchors, and links from each anchor to the next older
one."""

from __future__ import annotations

from typing import Final

import numpy as np

from stream.tables.arrays import U8, U64, distinct
from stream.tables.design import Design
from stream.tables.hot.chains import AnchorsToLink, Chains, Ring, link, sweep, unlink
from stream.tables.hot.slots import Slots

SHARING: Final = 3
"""Logarithm of the number of slots that share a chain, unless there are fewer prefixes."""
HEAD_BYTES: Final = 5
"""Bytes of a head and of the presence bits of its slots."""
_ALL_ENTER: Final = np.zeros(0, np.uint64)


class Heads:
    """Hash tables with 2**bits chains each.

    `newest[slot >> sharing]` is number + 1 of the newest anchor of a chain, and `links[row, table]` that of
    the next older anchor; 0 ends a chain. Bit slot % 8 of `present[slot // 8]` tells whether the slot has any
    anchors. Most slots of a chain have none, so few probes follow a chain.

    The arrays are allocated uninitialised. `clean` must be called before the first anchor is linked. It also
    makes the system allocate all pages, which would delay searches much more if done at random later.
    """

    def __init__(self, design: Design, bits: int, rows: int) -> None:
        self._design = design
        self.bits: Final = min(bits, int(design.prefix_bits.max()))
        widest = min(int(design.prefix_bits.max()), 32 - (design.tables - 1).bit_length())
        self.sharing: Final = max(0, min(SHARING, widest - self.bits))
        self.slots: Final = Slots(design, self.bits + self.sharing)
        self.chains = Chains(
            newest=np.empty(design.tables << self.bits, np.uint32),
            links=np.empty((rows, design.tables), np.uint32),
            present=np.empty(-(-self.slots.size // 8), np.uint8),
            sharing=self.sharing,
            fold=self.slots.fold,
            pieces=design.pieces,
        )

    def clean(self) -> None:
        """Empty all slots. Releases the GIL. On a virtual machine, allocating a gigabyte may take seconds."""
        self.chains.newest.fill(0)
        self.chains.present.fill(0)

    def link(self, rows: U64, number: int, row: int, masks: U64 | None, tables: slice) -> None:
        """Add anchors to their chains in some tables.

        They are numbered from `number` (as in `Chains`), newer than all before, and their `rows` (n, W + 1)
        are stored from the position `row` on. `masks` (n,) are the tables that each is kept out of; None for
        none.
        """
        entering = AnchorsToLink(rows, _ALL_ENTER if masks is None else masks, number, row)
        first, end, _ = tables.indices(self._design.tables)
        link(self.chains, (first, end), entering)

    def unlink(self, words: U64, ring: Ring, dead: U8) -> None:
        """Remove dead anchors from the chains of these keys (n, W). Without this, a URL whose page changes at
        every fetch would make one chain longer and longer."""
        slots = self.slots.of_keys(self._design.keys(words)).ravel() >> np.uint32(self.sharing)
        heads = distinct(slots.astype(np.uint64))
        unlink(heads, self.chains, ring, dead)

    def rebase(self, by: np.uint32) -> None:
        """Make all numbers smaller by so many. Those that would be negative end chains."""
        for numbers in (self.chains.newest, self.chains.links):
            np.subtract(np.maximum(numbers, by), by, out=numbers)

    def sweep(self, floor: int, start: int, end: int) -> None:
        """Clear the presence bits of the heads [start, end), multiples of 8, whose anchors are all below
        `floor`."""
        sweep(self.chains, floor, start, end)

"""The hot tier's chains: from a slot to its newest anchor, and from every anchor to the one before it."""

from __future__ import annotations

from typing import Final

import numpy as np

from stream.tables.arrays import U8, U32, U64, distinct
from stream.tables.chains import link, sweep, unlink
from stream.tables.design import Design
from stream.tables.slots import Slots

SHARING: Final = 3
"""2**3 slots, if there are as many prefixes, share a chain."""
HEAD_BYTES: Final = 5
"""A head, and a bit for each of its slots."""
_ALL_ENTER: Final = np.zeros(0, np.uint64)


class Heads:
    """2**bits chains a table: `newest[slot >> sharing]` is number + 1 of a chain's newest anchor,
    `links[row, table]` that of the one before.

    0 ends a chain. Bit slot % 8 of `present[slot // 8]` says whether any anchor has been in that slot: most
    slots of a chain hold none, so few probes follow one. Made of untouched memory, all of which `clean` must
    have touched before the first anchor is linked: at random, later, a page at a time, it would cost a search
    much more.
    """

    def __init__(self, design: Design, bits: int, rows: int) -> None:
        self._design = design
        self.bits: Final = min(bits, int(design.prefix_bits.max()))
        widest = min(int(design.prefix_bits.max()), 32 - (design.tables - 1).bit_length())
        self.sharing: Final = max(0, min(SHARING, widest - self.bits))
        self.slots: Final = Slots(design, self.bits + self.sharing)
        self.newest: U32 = np.empty(design.tables << self.bits, np.uint32)
        self.present: U8 = np.empty(-(-self.slots.size // 8), np.uint8)
        self.links: U32 = np.empty((rows, design.tables), np.uint32)

    def clean(self) -> None:
        """Empty every slot. Releases the GIL; a virtual machine may take seconds to find a gigabyte."""
        self.newest.fill(0)
        self.present.fill(0)

    def link(self, rows: U64, number: int, row: int, masks: U64 | None, tables: slice) -> None:
        """Put anchors numbered from `number`, newer than all before, into their chains of these tables; their
        rows (n, 2) are kept from `row` on.

        `masks` are the tables each one stays out of, shape (n,); None for none.
        """
        link(
            rows,
            *self._design.pieces,
            *self.slots.fold,
            self.sharing,
            *tables.indices(self._design.tables)[:2],
            number,
            row,
            _ALL_ENTER if masks is None else masks,
            self.newest,
            self.links,
            self.present,
        )

    def unlink(self, words: U64, floor: int, origin: int, dead: U8) -> None:
        """Take dead anchors out of the chains in which anchors of these words (n,) are, or would be: without
        this, a URL whose page changes every time would make one chain longer and longer."""
        slots = self.slots.of_keys(self._design.keys(words)).ravel() >> np.uint32(self.sharing)
        heads = distinct(slots.astype(np.uint64))
        unlink(heads, self.bits, self.newest, self.links, floor, origin, dead)

    def sweep(self, floor: int, start: int, end: int) -> None:
        """Have the slots of the heads [start, end), multiples of 8, of which all anchors are below `floor`
        hold nothing."""
        sweep(self.newest, self.present, self.sharing, floor, start, end)

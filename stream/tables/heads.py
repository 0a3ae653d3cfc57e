"""The hot tier's chains: from a slot to its newest anchor, and from every anchor to the one before it."""

from __future__ import annotations

import numpy as np

from stream.tables.candidates import I64
from stream.tables.design import U64, Design
from stream.tables.slots import U32, Slots


class Heads:
    """`newest[slot]` is number + 1 of a slot's newest anchor, `links[row, table]` that of the one before.

    0 ends a chain. Made of untouched memory, all of which `clean` must have touched before the first anchor
    is linked: at random, later, a page at a time, it would cost a search much more.
    """

    def __init__(self, design: Design, bits: int, rows: int) -> None:
        self._design = design
        self.slots = Slots(design, bits)
        self.newest: U32 = np.empty(self.slots.size, np.uint32)
        self.links: U32 = np.empty((rows, design.tables), np.uint32)

    def clean(self) -> None:
        """Empty every slot. Releases the GIL; a virtual machine may take seconds to find a gigabyte."""
        self.newest.fill(0)

    def link(self, fingerprints: U64, number: int, row: int, masks: U64 | None) -> None:
        """Put anchors numbered from `number`, newer than all before, in rows from `row`, into their chains.

        `masks` are the tables each one stays out of, shape (n,); None for none.
        """
        n, tables = len(fingerprints), self._design.tables
        slots = self.slots.of_keys(self._design.keys(fingerprints)).ravel()
        links = self.links[row : row + n].reshape(-1)
        numbers = np.repeat(np.arange(number + 1, number + 1 + n, dtype=np.uint32), tables)
        links[:] = self.newest.take(slots)
        cells: I64 | None = None
        if masks is not None:
            enters = (masks[:, None] >> np.arange(tables, dtype=np.uint64) & np.uint64(1)) == 0
            cells = np.flatnonzero(enters)
            slots, numbers = slots[cells], numbers[cells]
        self.newest[slots] = numbers
        winner = self.newest.take(slots)
        lost = np.flatnonzero(winner != numbers)
        if not len(lost):
            return
        # Anchors of one call that share a slot: newest first, the oldest keeps its link.
        lost_cells = lost if cells is None else cells[lost]
        won_cells = (winner[lost].astype(np.int64) - 1 - number) * tables + lost_cells % tables
        won = won_cells if cells is None else cells.searchsorted(won_cells)
        rivals = np.unique(np.concatenate([lost, won]))
        order = rivals[np.argsort(slots[rivals], kind="stable")]
        slot, newest = slots[order], numbers[order]
        same = slot[1:] == slot[:-1]
        behind = np.flatnonzero(same)
        later = order[behind + 1]
        links[later if cells is None else cells[later]] = newest[behind]
        ends = np.append(np.flatnonzero(~same), len(order) - 1)
        self.newest[slot[ends]] = newest[ends]

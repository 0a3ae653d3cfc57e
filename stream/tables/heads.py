"""The hot tier's chains: from a slot to its newest anchor, and from every anchor to the one before it."""

from __future__ import annotations

from typing import Final

import numpy as np

from stream.tables.candidates import U8
from stream.tables.chains import link
from stream.tables.design import U64, Design
from stream.tables.prefix import keys_of
from stream.tables.slots import U32, Slots

_ALL_ENTER: Final = np.zeros(0, np.uint64)


class Heads:
    """`newest[slot]` is number + 1 of a slot's newest anchor, `links[row, table]` that of the one before.

    0 ends a chain. Bit slot % 8 of `present[slot // 8]` says whether a chain may begin there. Made of
    untouched memory, all of which `clean` must have touched before the first anchor is linked: at random,
    later, a page at a time, it would cost a search much more.
    """

    def __init__(self, design: Design, bits: int, rows: int) -> None:
        self._design = design
        self.slots = Slots(design, bits)
        self.newest: U32 = np.empty(self.slots.size, np.uint32)
        self.present: U8 = np.empty(-(-self.slots.size // 8), np.uint8)
        self.links: U32 = np.empty((rows, design.tables), np.uint32)

    def clean(self) -> None:
        """Empty every slot. Releases the GIL; a virtual machine may take seconds to find a gigabyte."""
        self.newest.fill(0)
        self.present.fill(0)

    def link(self, words: U64, number: int, row: int, masks: U64 | None, tables: slice) -> None:
        """Put anchors numbered from `number`, newer than all before, in rows from `row`, into their chains of
        these tables.

        `masks` are the tables each one stays out of, shape (n,); None for none.
        """
        link(
            self.slots.of_keys(keys_of(words, *self._design.pieces)),
            *tables.indices(self._design.tables)[:2],
            number,
            row,
            _ALL_ENTER if masks is None else masks,
            self.newest,
            self.links,
            self.present,
        )

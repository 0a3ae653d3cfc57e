"""Slots: the positions of buckets in a flat array that has 2**bits slots per table."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from stream.compiled import compiled
from stream.tables.arrays import U32, U64
from stream.tables.design import TABLE_BITS, Design


class Fold(NamedTuple):
    """How a prefix is folded to a slot."""

    bits: int
    """Bits of a slot within its table."""
    parts: int
    """Number of parts of a prefix that are XORed."""


@compiled
def slot_of(prefix: np.uint64, fold: Fold, table: int) -> np.uint64:
    """The slot of a table's prefix, as by `Slots.of_keys`."""
    folded, bits = prefix, np.uint64(fold.bits)
    for part in range(1, fold.parts):
        folded ^= prefix >> np.uint64(part * fold.bits)
    return folded & ((np.uint64(1) << bits) - np.uint64(1)) | np.uint64(table) << bits


class Slots:
    """Maps prefixes to slots by folding them to `bits` bits. Each table has its own region of the array."""

    def __init__(self, design: Design, bits: int) -> None:
        self.bits: Final = min(bits, int(design.prefix_bits.max()))
        self.size: Final = design.tables << self.bits
        if self.size > 1 << 32:
            raise ValueError(f"{design.tables} tables of 2**{self.bits} slots exceed 32-bit slot numbers")
        self.fold: Final = Fold(self.bits, -(-int(design.prefix_bits.max()) // self.bits))
        self._region = np.arange(design.tables, dtype=np.uint32) << np.uint32(self.bits)

    def of_keys(self, keys: U64) -> U32:
        """Slots of keys, shape (n, T)."""
        mask = np.uint64((1 << self.bits) - 1)
        if self.fold.parts == 1:
            return (keys >> np.uint64(TABLE_BITS)).astype(np.uint32) | self._region
        folded = (keys >> np.uint64(TABLE_BITS)) & mask
        for part in range(1, self.fold.parts):
            folded ^= (keys >> np.uint64(TABLE_BITS + part * self.bits)) & mask
        return folded.astype(np.uint32) | self._region

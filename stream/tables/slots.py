"""Where a bucket lies in a flat array that has 2**bits places for each table."""

from __future__ import annotations

from typing import Final

import numpy as np

from stream.compiled import compiled
from stream.tables.arrays import U32, U64
from stream.tables.design import TABLE_BITS, Design


@compiled
def slot_of(prefix: np.uint64, bits: int, parts: int, table: int) -> np.uint64:
    """What `Slots.of_keys` gives for the prefix of a table; `bits` and `parts` are those of `Slots.fold`."""
    folded = prefix
    for part in range(1, parts):
        folded ^= prefix >> np.uint64(part * bits)
    return folded & ((np.uint64(1) << np.uint64(bits)) - np.uint64(1)) | np.uint64(table) << np.uint64(bits)


class Slots:
    """Prefixes folded to `bits` bits, one region of the array a table.

    Folding is XOR of the prefix's parts, so a flipped bit of the fingerprint flips a fixed bit of the slot:
    the slots of all probes follow from the exact ones without their keys.
    """

    def __init__(self, design: Design, bits: int) -> None:
        self.bits: Final = min(bits, int(design.prefix_bits.max()))
        self.size: Final = design.tables << self.bits
        if self.size > 1 << 32:
            raise ValueError(f"{design.tables} tables of 2**{self.bits} slots are not numbered by 32 bits")
        self._parts = -(-int(design.prefix_bits.max()) // self.bits)
        self.fold: Final = self.bits, self._parts
        """For `slot_of`."""
        self._region = np.arange(design.tables, dtype=np.uint32) << np.uint32(self.bits)
        self.flips: Final = self._fold(design.key_flip)
        """Shape (width + 1, T): what flipping a bit flips in the slots; 0 outside the prefix."""

    def _fold(self, keys: U64) -> U32:
        mask = np.uint64((1 << self.bits) - 1)
        if self._parts == 1:
            return (keys >> np.uint64(TABLE_BITS)).astype(np.uint32)
        folded = (keys >> np.uint64(TABLE_BITS)) & mask
        for part in range(1, self._parts):
            folded ^= (keys >> np.uint64(TABLE_BITS + part * self.bits)) & mask
        return folded.astype(np.uint32)

    def of_keys(self, keys: U64) -> U32:
        """Slots of exact keys, shape (n, T)."""
        return self._fold(keys) | self._region

"""Which buckets of a run hold anything: a bit a slot, in RAM, that is asked before RocksDB is."""

from __future__ import annotations

from typing import Final

import numpy as np

from stream.compiled import compiled
from stream.tables.candidates import I64, U8
from stream.tables.design import TABLE_BITS, U64, Design
from stream.tables.probing import Probing
from stream.tables.slots import U32

_ALL_ENTER: Final = np.zeros(0, np.uint64)
_FIRST_MET: Final = 1 << 12


class Presence:
    """2**bits slots a table. A slot is a prefix, or where that is longer, the XOR of its parts."""

    def __init__(self, design: Design, bits: int) -> None:
        self._design = design
        self._bits = bits
        self._present = np.zeros(max(1, design.tables << bits >> 3), np.uint8)

    @property
    def memory(self) -> int:
        """Bytes."""
        return self._present.size

    def mark(self, words: U64, masks: U64 | None) -> None:
        """Anchors entered the buckets of their words (n,), but not those of the tables in `masks` (n,)."""
        words = np.ascontiguousarray(words)
        _mark(words, _ALL_ENTER if masks is None else masks, *self._design.pieces, self._bits, self._present)

    def meet(self, probing: Probing) -> tuple[U64, U32]:
        """Keys of the buckets that are probed and may hold something, in order of table, and for whom:
        row * 2, and 1 more where the probe is exact."""
        return _meet(
            probing.keys,
            probing.bits,
            self._design.key_flip,
            *probing.tree,
            self._bits,
            self._present,
        )


@compiled
def _slot(prefix: np.uint64, bits: int, table: int) -> np.uint64:
    folded = np.uint64(0)
    while prefix:
        folded ^= prefix & ((np.uint64(1) << np.uint64(bits)) - np.uint64(1))
        prefix >>= np.uint64(bits)
    return np.uint64(table) << np.uint64(bits) | folded


@compiled
def _mark(words: U64, masks: U64, shifts: U64, block_masks: U64, places: U64, bits: int, present: U8) -> None:
    """Table after table: what one takes of `present` stays in the processor's cache."""
    for table in range(shifts.shape[0]):
        for row in range(words.shape[0]):
            if masks.size and masks[row] >> np.uint64(table) & np.uint64(1):
                continue
            prefix = np.uint64(0)
            for piece in range(shifts.shape[1]):
                block = (words[row] >> shifts[table, piece]) & block_masks[table, piece]
                prefix |= block << places[table, piece]
            slot = _slot(prefix, bits, table)
            present[slot >> np.uint64(3)] |= np.uint8(1) << np.uint8(slot & np.uint64(7))


@compiled
def _meet(
    keys: U64, flip_bits: U8, key_flip: U64, parents: I64, added: I64, bits: int, present: U8
) -> tuple[U64, U32]:
    """`flip_bits` (F, n, T) may be: probe p flips what `parents[p]` flips, and `flip_bits[added[p]]`."""
    met, asking, found = np.empty(_FIRST_MET, np.uint64), np.empty(_FIRST_MET, np.uint32), 0
    probes = len(parents)
    probed = np.empty(probes, np.uint64)
    for table in range(keys.shape[1]):
        for row in range(keys.shape[0]):
            probed[0] = keys[row, table]
            if found + probes > len(met):
                grown, grown_asking = np.empty(2 * len(met) + probes, np.uint64), asking
                grown[:found] = met[:found]
                asking = np.empty(2 * len(met) + probes, np.uint32)
                asking[:found] = grown_asking[:found]
                met = grown
            for probe in range(probes):
                if probe:
                    flip = key_flip[flip_bits[added[probe], row, table], table]
                    probed[probe] = probed[parents[probe]] ^ flip
                    if flip == np.uint64(0):  # no such bit in this prefix: the parent looks there already
                        continue
                slot = _slot(probed[probe] >> np.uint64(TABLE_BITS), bits, table)
                if present[slot >> np.uint64(3)] >> np.uint8(slot & np.uint64(7)) & np.uint8(1):
                    met[found] = probed[probe]
                    asking[found] = np.uint32(2 * row + (probe == 0))
                    found += 1
    return met[:found], asking[:found]

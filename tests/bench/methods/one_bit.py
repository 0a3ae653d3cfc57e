"""One inverted index per bit (seed 001)."""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from stream.fingerprint.lanes import distances, words_of
from stream.offline.pairs import Pairs
from stream.tables.arrays import U64
from tests.bench.methods.method import Cost, Method

_BUILT: Final = 1 << 16


class OneBit(Method):
    """`width` indexes with the keys 0 and 1, as bitmaps over the stored fingerprints.

    Each key matches half of all fingerprints, so the indexes are not selective: nearly all fingerprints share
    a bit with a query. But they can count differences: the bitmaps of differing bits are added bit-sliced, 64
    fingerprints per operation, and fingerprints with more than `distance` differences are discarded.
    """

    summary: ClassVar = "one inverted index a bit, differences counted"

    def __init__(self, stored: U64, width: int, distance: int) -> None:
        super().__init__(stored, width, distance)
        self._maps = np.zeros((width, -(-len(self.stored) // 64) * 8), np.uint8)
        for start in range(0, len(self.stored), _BUILT):
            part = np.ascontiguousarray(self.stored[start : start + _BUILT, ::-1], "<u8")
            bits = np.unpackbits(part.view(np.uint8), axis=1, bitorder="little")[:, :width]
            packed = np.packbits(bits.T, axis=1, bitorder="little")
            self._maps[:, start // 8 : start // 8 + packed.shape[1]] = packed
        self._ones = self._maps.view(np.uint64)

    def _search(self, queries: U64) -> Pairs:
        parts = []
        planes = np.empty((self.distance.bit_length(), self._ones.shape[1]), np.uint64)
        over, carry, both = (np.empty(self._ones.shape[1], np.uint64) for _ in range(3))
        for row, query in enumerate(queries):
            planes[:] = 0
            over[:] = 0
            for bit in range(self.width):
                ones = int(query[-1 - bit // 64]) >> (bit % 64) & 1
                np.bitwise_xor(self._ones[bit], ~np.uint64(0) if ones else np.uint64(0), out=carry)
                for plane in planes:
                    np.bitwise_and(plane, carry, out=both)
                    np.bitwise_xor(plane, carry, out=plane)
                    carry, both = both, carry
                np.bitwise_or(over, carry, out=over)
            left = np.flatnonzero(~over)
            bits = np.unpackbits((~over[left]).astype("<u8").view(np.uint8), bitorder="little")
            place = np.flatnonzero(bits)
            stored_rows = left[place >> 6] * 64 + (place & 63)
            stored_rows = stored_rows[stored_rows < len(self.stored)]
            apart = distances(
                np.broadcast_to(query, (len(stored_rows), len(query))), self.stored[stored_rows]
            )
            near = apart <= self.distance
            parts.append(Pairs(np.full(int(near.sum()), row), stored_rows[near], apart[near]))
        self.probes += len(queries) * self.width
        self.candidates += len(queries) * len(self.stored)
        return Pairs.merge(parts)

    @property
    def bytes(self) -> int:
        return self._maps.nbytes

    @classmethod
    def predicted(cls, stored: int, width: int, distance: int) -> Cost:
        words_of(width)
        return Cost(width, stored * (1 - 0.5**width), stored * width / 8)

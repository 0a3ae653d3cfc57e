"""Brute force: compares every query with every stored fingerprint."""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from stream.fingerprint.lanes import words_of
from stream.offline.pairs import Pairs
from stream.tables.arrays import U64
from tests.bench.methods.method import Cost, Method

STORED: Final = 1 << 14
QUERIES: Final = 1 << 4
"""Size of a tile in stored fingerprints and queries. Its XORs, 2 MiB, stay in the second-level cache."""


class BruteForce(Method):
    """No index: n comparisons per query. The reference for the other methods."""

    summary: ClassVar = "compare with all"

    def _search(self, queries: U64) -> Pairs:
        parts = []
        for start in range(0, len(self.stored), STORED):
            stored = self.stored[start : start + STORED]
            for first in range(0, len(queries), QUERIES):
                tile = queries[first : first + QUERIES]
                apart = np.bitwise_count(tile[:, None, 0] ^ stored[:, 0])
                for word in range(1, stored.shape[1]):
                    apart += np.bitwise_count(tile[:, None, word] ^ stored[:, word])
                near = np.flatnonzero((apart <= self.distance).ravel())  # far faster than np.nonzero in 2-D
                row, place = np.divmod(near, len(stored))
                parts.append(Pairs(row + first, place + start, apart[row, place]))
        self.probes += len(queries)
        self.candidates += len(queries) * len(self.stored)
        return Pairs.merge(parts)

    @property
    def bytes(self) -> int:
        return self.stored.nbytes

    @classmethod
    def predicted(cls, stored: int, width: int, distance: int) -> Cost:
        return Cost(1, stored, stored * words_of(width) * 8)

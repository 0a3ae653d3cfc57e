"""One sorted table with a look-up for every fingerprint near the query (seeds 000 and 002)."""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from stream.fingerprint.lanes import distances, words_of
from stream.offline.pairs import Pairs
from stream.tables.arrays import U64
from tests.bench.methods.ball import ball_masks, ball_size, folded
from tests.bench.methods.method import Cost, Method
from tests.bench.methods.ranges import expand

PROBES: Final = 1 << 20
"""Look-ups made at a time."""


class QueryBall(Method):
    """43 745 exact look-ups per query at 64 bits and distance 3: little memory, but far too many probes."""

    summary: ClassVar = "look up the query's ball in one sorted table"

    def __init__(self, stored: U64, width: int, distance: int) -> None:
        super().__init__(stored, width, distance)
        self._masks = ball_masks(width, distance)
        keys = folded(self.stored)
        self._rows = np.argsort(keys, kind="stable").astype(np.uint32)
        self._keys = keys[self._rows]

    def _search(self, queries: U64) -> Pairs:
        parts = []
        members = len(self._masks)
        step = max(1, PROBES // members)
        for first in range(0, len(queries), step):
            tile = queries[first : first + step]
            probes = (tile[:, None] ^ self._masks).reshape(-1, tile.shape[1])
            keys = folded(probes)
            starts = self._keys.searchsorted(keys)
            hit = (
                np.flatnonzero(self._keys[np.minimum(starts, len(self._keys) - 1)] == keys)
                if len(self._keys)
                else np.zeros(0, np.int64)
            )
            ends = self._keys.searchsorted(keys[hit], side="right")
            place, source = expand(starts[hit], ends - starts[hit])
            row, stored_rows = hit[source] // members, self._rows[place].astype(np.int64)
            self.candidates += len(stored_rows)
            apart = distances(tile[row], self.stored[stored_rows])
            near = apart <= self.distance
            parts.append(Pairs(row[near] + first, stored_rows[near], apart[near]))
        self.probes += len(queries) * members
        return Pairs.merge(parts)

    @property
    def bytes(self) -> int:
        return self._keys.nbytes + self._rows.nbytes

    @classmethod
    def predicted(cls, stored: int, width: int, distance: int) -> Cost:
        members = ball_size(width, distance)
        return Cost(members, stored * members / 2.0**width, stored * (words_of(width) * 8 + 4))

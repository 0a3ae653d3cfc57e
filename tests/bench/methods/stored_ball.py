"""A table of every fingerprint near a stored one; a query takes one look-up (seed 000)."""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from stream.errors import SettingsError
from stream.fingerprint.lanes import distances
from stream.offline.pairs import Pairs
from stream.tables.arrays import U64
from tests.bench.methods.ball import ball_masks, ball_size, folded
from tests.bench.methods.method import Cost, Method
from tests.bench.methods.ranges import expand

MOST_BYTES: Final = 1 << 30
"""Largest table that is built, in bytes."""
_ENTRY: Final = 12  # folded fingerprint u64, row u32


class StoredBall(Method):
    """One probe per query, for 43 745 times the memory: 0.5 MB per fingerprint at 64 bits and distance 3.

    A billion pages would take 525 TB. It is built only up to 1 GiB, which holds 2 045 fingerprints. Raises
    SettingsError beyond that.
    """

    summary: ClassVar = "store every fingerprint's ball, look up the query"

    def __init__(self, stored: U64, width: int, distance: int) -> None:
        super().__init__(stored, width, distance)
        size = self.predicted(len(self.stored), width, distance).bytes
        if size > MOST_BYTES:
            raise SettingsError(
                f"stored ball: {len(self.stored):,} fingerprints within distance {distance} would take"
                f" {size:,.0f} bytes; at most {MOST_BYTES:,} are supported"
            )
        masks = ball_masks(width, distance)
        keys = folded((self.stored[:, None] ^ masks).reshape(-1, self.stored.shape[1]))
        order = np.argsort(keys, kind="stable")
        self._keys = keys[order]
        self._rows = (order // len(masks)).astype(np.uint32)

    def _search(self, queries: U64) -> Pairs:
        keys = folded(queries)
        starts, ends = self._keys.searchsorted(keys), self._keys.searchsorted(keys, side="right")
        place, row = expand(starts, ends - starts)
        stored_rows = self._rows[place].astype(np.int64)
        self.probes += len(queries)
        self.candidates += len(stored_rows)
        apart = distances(queries[row], self.stored[stored_rows])
        near = apart <= self.distance
        return Pairs.merge([Pairs(row[near], stored_rows[near], apart[near])])

    @property
    def bytes(self) -> int:
        return self._keys.nbytes + self._rows.nbytes

    @classmethod
    def predicted(cls, stored: int, width: int, distance: int) -> Cost:
        members = ball_size(width, distance)
        return Cost(1, stored * members / 2.0**width, stored * members * _ENTRY)

"""Near pairs, as every search without a stream returns them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stream.tables.arrays import I64, U8


@dataclass(frozen=True, slots=True)
class Pairs:
    """Near pairs: distinct (row, stored) pairs, sorted by row, then stored."""

    row: I64
    """Index of the query."""
    stored: I64
    """Index of the stored fingerprint."""
    distance: U8
    """Their Hamming distance."""

    def __len__(self) -> int:
        return len(self.row)

    @classmethod
    def none(cls) -> Pairs:
        """No pairs."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint8))

    @classmethod
    def merge(cls, parts: list[Pairs]) -> Pairs:
        """The union of the parts, sorted."""
        if not parts:
            return cls.none()
        row = np.concatenate([part.row for part in parts])
        stored = np.concatenate([part.stored for part in parts])
        distance = np.concatenate([part.distance for part in parts])
        order = np.lexsort((stored, row))
        row, stored = row[order], stored[order]
        keep = np.ones(len(row), bool)
        keep[1:] = (row[1:] != row[:-1]) | (stored[1:] != stored[:-1])
        return cls(row[keep], stored[keep], distance[order][keep])

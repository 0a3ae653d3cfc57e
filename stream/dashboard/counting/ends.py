"""The offsets up to which rows are folded, at which batches of redelivered verdicts are split."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

MOST: Final = 10_000
"""Minimum number of offsets kept, the largest ones. Those of one second would suffice."""


class FoldedOffsets:
    """The distinct last folded offsets of the rows of one partition."""

    def __init__(self) -> None:
        self._offsets: set[int] = set()
        self._sorted: list[int] = []
        self.last = -1
        """The largest offset."""

    def add(self, offset: int) -> None:
        """Record that some row is, or is about to be, folded up to `offset`."""
        if offset in self._offsets:
            return
        self._offsets.add(offset)
        if offset > self.last and len(self._sorted) == len(self._offsets) - 1:
            self._sorted.append(offset)
        self.last = max(self.last, offset)
        if len(self._offsets) > 2 * MOST:
            self._sorted = sorted(self._offsets)[-MOST:]
            self._offsets = set(self._sorted)

    def between(self, first: int, end: int) -> list[int]:
        """Return the offsets in [first, end), in order."""
        if first > self.last:  # the common case: nothing is redelivered
            return []
        if len(self._sorted) != len(self._offsets):
            self._sorted = sorted(self._offsets)
        return self._sorted[bisect_left(self._sorted, first) : bisect_right(self._sorted, end - 1)]

"""Up to which offsets rows are folded: where verdicts that come again are cut."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

MOST: Final = 10_000
"""Offsets that are kept at least, the largest; a second's worth is enough."""


class Ends:
    """Offsets that rows of a partition are folded up to."""

    def __init__(self) -> None:
        self._known: set[int] = set()
        self._sorted: list[int] = []
        self.last = -1
        """The largest."""

    def add(self, offset: int) -> None:
        """Some row is folded up to there, or is about to be."""
        if offset in self._known:
            return
        self._known.add(offset)
        if offset > self.last and len(self._sorted) == len(self._known) - 1:
            self._sorted.append(offset)
        self.last = max(self.last, offset)
        if len(self._known) > 2 * MOST:
            self._sorted = sorted(self._known)[-MOST:]
            self._known = set(self._sorted)

    def between(self, first: int, end: int) -> list[int]:
        """Those from `first` to before `end`, in order."""
        if first > self.last:  # nearly always: what comes is new
            return []
        if len(self._sorted) != len(self._known):
            self._sorted = sorted(self._known)
        return self._sorted[bisect_left(self._sorted, first) : bisect_right(self._sorted, end - 1)]

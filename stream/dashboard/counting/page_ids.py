"""Sets of ids of pages, many of which take little memory."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final

import numpy as np
from numpy.typing import NDArray

LEAST_JOINED: Final = 4096
"""Ids that are sorted into the others at once, at least. Of a long history, each decision has a few."""
JOINED_SHARE: Final = 16
"""They are also at least the others' number divided by this."""


class PageIds:
    """A set of packed ids of pages of a journal."""

    def __init__(self, encoded: bytes = b"") -> None:
        """`encoded` is what the method of this name returned."""
        ids = np.frombuffer(encoded, "<i8").astype(np.int64)
        self._ids = array("q", ids.tobytes())  # ascending; an eighth of the memory of a set
        self._added = set[int]()
        """Those that are not among them yet."""

    def __len__(self) -> int:
        self._join()
        return len(self._ids)

    def __contains__(self, page: int) -> bool:
        place = bisect_left(self._ids, page)
        return page in self._added or (place < len(self._ids) and self._ids[place] == page)

    def add(self, pages: NDArray[np.int64]) -> None:
        """Add pages."""
        self._added.update(pages.tolist())
        if len(self._added) > max(LEAST_JOINED, len(self._ids) // JOINED_SHARE):
            self._join()

    def _join(self) -> None:
        if self._added:
            before = np.frombuffer(self._ids, np.int64)
            added = np.fromiter(self._added, np.int64, len(self._added))
            self._ids = array("q", np.union1d(before, added).tobytes())
            self._added.clear()

    def encoded(self) -> bytes:
        """Packed ids, ascending, i64 LE each."""
        self._join()
        return np.frombuffer(self._ids, np.int64).astype("<i8").tobytes()

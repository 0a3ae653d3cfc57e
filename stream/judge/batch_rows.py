"""How many rows a batch may have, so that none takes long. No verdict depends on how batches are cut."""

from __future__ import annotations

from typing import Final

BATCH_SECONDS: Final = 0.25
"""What a batch is meant to take. Tables that are read from disk, and runs that are merged beside, may slow a
judge down to a quarter at once: then a full batch took more than a second, in which its pages waited."""
LEAST_ROWS: Final = 4096
"""Rows that a batch may always have. Smaller ones cost as much as they save."""
MOST_GROWTH: Final = 1.25
"""Factor by which the next batch may be larger."""


class BatchRows:
    """The bound on the rows of the next batch, from what the last ones took."""

    def __init__(self, most: int) -> None:
        self.limit = self._most = most
        """Number of rows that the next batch may have, at most `most`."""

    def note(self, rows: int, seconds: float) -> None:
        """Note what a batch took. One that was shorter than it might have been, and took no longer than
        meant, says nothing about a full one."""
        if seconds > BATCH_SECONDS or 2 * rows > self.limit:
            meant = rows * BATCH_SECONDS / max(seconds, 1e-6)
            self.limit = min(self._most, max(LEAST_ROWS, int(min(meant, self.limit * MOST_GROWTH))))

"""Pauses a worker that would reject most of its input through a producer's fault (rule 5).

Pure: no Kafka, no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from itertools import chain
from typing import Final

from stream.messages.reasons import PRODUCER
from stream.roles.worker.backlog import JournalBatch

WINDOW: Final = 250
"""Number of recent pages per partition that are considered."""
PARTITIONS: Final = 4
"""Number of full windows required, if that many partitions are assigned, so that a single partition never
stops a worker."""
PAUSE_SECONDS: Final = 30.0
MOST_PAUSE_SECONDS: Final = 900.0
"""First and longest pause between retries; pauses double."""


class RejectLimit:
    """Limits the share of pages that are rejected through a producer's fault, over all partitions.

    Rejections that a web page can cause do not count: a host that serves only unknown charsets must not stop
    the crawl. A single partition does not count either, if there are several.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._windows: dict[int, deque[bool]] = {}
        self._next_pause = PAUSE_SECONDS
        self._reason: str | None = None
        self.why: str | None = None
        """Why batches are refused; None if they are not."""

    def assign(self, partitions: Collection[int]) -> None:
        """Set the assigned partitions."""
        self._windows = {each: self._windows.get(each, deque(maxlen=WINDOW)) for each in partitions}

    def pause(self) -> float:
        """Return the seconds until the next retry."""
        seconds, self._next_pause = self._next_pause, min(2 * self._next_pause, MOST_PAUSE_SECONDS)
        return seconds

    def refuses(self, batch: JournalBatch) -> bool:
        """Return whether the batch must not be appended now.

        After a refusal, the next batch is a retry: it is checked by itself, and if it passes, counting
        restarts.
        """
        faults = [row.reason in PRODUCER for row in batch.rows]
        if self.why is not None:
            if not faults or sum(faults) > self._limit * len(faults):
                return bool(faults)
            self.why = None
            return False
        self._reason = next((row.reason for row in batch.rows if row.reason in PRODUCER), self._reason)
        rows = iter(faults)
        for each in batch.ranges:
            self._windows[each.partition].extend(next(rows) for _ in range(each.rows))
        seen = sum(map(len, self._windows.values()))
        if seen < WINDOW * min(len(self._windows), PARTITIONS):
            return False
        bad = sum(chain.from_iterable(self._windows.values()))
        if bad <= self._limit * seen:
            self._next_pause = PAUSE_SECONDS
            return False
        self.why = (
            f"reject_limit: {bad / seen:.1%} of the last {seen} pages were rejected through a fault of their "
            f"producer, more than {self._limit:.1%}; the last reason is {self._reason}"
        )
        self._windows = {each: deque(maxlen=WINDOW) for each in self._windows}
        return True

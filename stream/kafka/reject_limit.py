"""Whether a worker would reject the stream rather than pages of it (rule 5). Pure: no Kafka, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from itertools import chain
from typing import Final

from stream.kafka.backlog import Batch
from stream.messages.reasons import PRODUCER

WINDOW: Final = 250
"""Pages of a partition that are looked back on."""
PARTITIONS: Final = 4
"""Windows that must be full, where so many partitions are assigned: one alone never stops a worker."""
PAUSE_SECONDS: Final = 30.0
MOST_PAUSE_SECONDS: Final = 900.0
"""Pauses between tries: the first, doubled up to the longest."""


class RejectLimit:
    """Counts pages that are rejected by a producer's fault: a limit on their share, over all partitions.

    What strangers can cause does not count, however often: a host that serves nothing but unknown charsets
    must not stop the crawl. Nor does one partition alone, where there are several.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._windows: dict[int, deque[bool]] = {}
        self._next_pause = PAUSE_SECONDS
        self._reason: str | None = None
        self.why: str | None = None
        """Why batches are refused; None while they are not."""

    def assign(self, partitions: Collection[int]) -> None:
        """Look at these partitions from now on."""
        self._windows = {each: self._windows.get(each, deque(maxlen=WINDOW)) for each in partitions}

    def pause(self) -> float:
        """Seconds until the next try."""
        seconds, self._next_pause = self._next_pause, min(2 * self._next_pause, MOST_PAUSE_SECONDS)
        return seconds

    def refuses(self, batch: Batch) -> bool:
        """Whether the batch must not be appended now.

        Once one was refused, the next one is a try: it is looked at by itself, and when it passes, counting
        begins anew.
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
            f"reject_limit: {bad / seen:.1%} of the last {seen} pages were rejected by a fault of their "
            f"producer, more than {self._limit:.1%}; most lately {self._reason}"
        )
        self._windows = {each: deque(maxlen=WINDOW) for each in self._windows}
        return True

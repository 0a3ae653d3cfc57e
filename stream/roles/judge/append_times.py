"""Tells of a broker whose clock is ahead, by the append times of journal records (rule 15)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import structlog
from prometheus_client import Gauge

from stream.judge.judged_batch import JudgedBatch
from stream.judge.log_time import AHEAD_MS
from stream.pages.times import LATEST, rfc3339

WARN_SECONDS: Final = 60.0
"""Time between warnings."""

log = structlog.get_logger(__name__)


class AppendTimes:
    """Compares append times with this machine's clock."""

    def __init__(self, gauge: Gauge) -> None:
        """`gauge` has the label `broker`."""
        self._gauge = gauge
        self._warn_again = 0.0

    def note(self, decided: JudgedBatch, broker: Callable[[], int | None]) -> None:
        """Report the append times of judged records. `broker` returns the broker that leads the journal."""
        appended = max(entry.time for entry in decided.entries)
        ahead = appended - time.time_ns() // 1_000_000
        is_ahead, leader = ahead > AHEAD_MS, broker()
        self._gauge.clear()  # of brokers that led before
        self._gauge.labels("unknown" if leader is None else str(leader)).set(ahead / 1000 if is_ahead else 0)
        if is_ahead and time.monotonic() >= self._warn_again:
            self._warn_again = time.monotonic() + WARN_SECONDS
            log.warning(
                "append_time_ahead",
                broker=leader,
                appended=rfc3339(min(appended, LATEST)),
                counted_as=rfc3339(decided.log_time),
                message="the clock of the broker that leads the journal is ahead of this one by more than ten"
                " minutes",
            )

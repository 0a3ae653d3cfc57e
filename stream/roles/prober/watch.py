"""Metrics and health of a prober."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import structlog

from stream.judge.segments.answer import Answer
from stream.messages.segments import SegmentRecord
from stream.ops.health import Health
from stream.ops.metrics import ProberMetrics
from stream.roles.prober.schedule import RUN_ROWS, Task

PROGRESS_SECONDS: Final = 10.0
"""Interval at which the log says how far loading is."""
BEHIND_ROWS: Final = 4 * RUN_ROWS
"""A prober with more rows to answer is not ready."""
log = structlog.get_logger(__name__, role="prober")


class ProberWatch:
    """Collects metrics and health of a prober."""

    def __init__(self) -> None:
        self.metrics, self.health = ProberMetrics(), Health()
        self._loading_since = self._next_progress = 0.0

    @contextmanager
    def following(
        self, missing: Callable[[], int | None], lag: Callable[[], int], waiting: Callable[[], int]
    ) -> Iterator[None]:
        """Watch a prober while entered: how many segments it lacks, None if that is not known; the journal
        records that it has not read; and the rows that it has read, and not answered."""
        checks, metrics = self.health.checks, self.metrics
        checks["assigned"] = lambda: missing() is not None
        checks["loaded"] = lambda: missing() == 0
        checks["following"] = lambda: waiting() <= BEHIND_ROWS
        metrics.missing.set_function(lambda: missing() or 0)
        metrics.lag_records.set_function(lag)
        metrics.waiting_rows.set_function(waiting)
        try:
            yield
        finally:
            checks.clear()
            for gauge in (metrics.missing, metrics.lag_records, metrics.waiting_rows):
                gauge.set_function(lambda: 0)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time one stage of the work."""
        with self.metrics.stage_seconds.labels(name).time():
            yield

    @contextmanager
    def loading(self, segment: SegmentRecord) -> Iterator[None]:
        """Report that a segment is loaded, while entered."""
        now = time.monotonic()
        self._loading_since, self._next_progress = now, now + PROGRESS_SECONDS
        self.metrics.loading_anchors.set(segment.end - segment.first)
        try:
            with self.stage("load"):
                yield
        finally:
            self.metrics.loading_anchors.set(0)

    def note_built(self, segment: SegmentRecord, built: int) -> None:
        """Report how many anchors are in the tables of the segment that is loaded. Called in a thread."""
        rest, now = segment.end - max(segment.first, segment.oldest) - built, time.monotonic()
        self.metrics.loading_anchors.set(rest)
        if built and now >= self._next_progress:
            self._next_progress = now + PROGRESS_SECONDS
            left = round(rest * (now - self._loading_since) / built)
            log.info("loading", first=segment.first, end=segment.end, anchors=built, seconds_left=left)

    def note_answered(self, task: Task, answer: Answer, values: Sequence[bytes], rows: int) -> None:
        """Count an answer about so many rows that is sent in these records."""
        self.metrics.rows.inc(rows)
        self.metrics.answers.labels(task.reason).inc()
        self.metrics.answer_bytes.inc(sum(map(len, values)))
        self.metrics.cut.inc(len(answer.cut))

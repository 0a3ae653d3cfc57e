"""Metrics and health of the elector."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from stream.elector.elector import Due
from stream.elector.state import State
from stream.kafka.reader import JournalReader, RecordReader
from stream.ops.elapsed import Elapsed
from stream.ops.health import Health
from stream.ops.metrics import ElectorMetrics


class ElectorWatch:
    """Collects metrics and health of an elector, partly on demand from the open state."""

    def __init__(self) -> None:
        self.metrics, self.health = ElectorMetrics(), Health()

    @contextmanager
    def following(self, state: State, journal: JournalReader, decisions: RecordReader) -> Iterator[None]:
        """Watch an open state while entered."""
        metrics, checks = self.metrics, self.health.checks
        checks["broker"] = decisions.reach
        checks["journal"] = lambda: not journal.is_unreachable
        checks["followed"] = lambda: False

        def remaining() -> int:
            return max(0, (decisions.stable or 0) - decisions.position)

        metrics.lag_records.set_function(remaining)
        metrics.lag_seconds.set_function(
            lambda: max(0.0, time.time() - state.meta.time / 1000) if remaining() and state.meta.time else 0.0
        )
        metrics.urls.set_function(lambda: state.meta.urls)
        metrics.clusters.set_function(lambda: state.meta.clusters)
        metrics.due.set_function(lambda: state.meta.due)
        metrics.journal_position.set_function(lambda: state.meta.applied)
        metrics.erasing.set_function(Elapsed(lambda: state.meta.erased != state.meta.forgotten))
        self.note_flush(state)
        try:
            yield
        finally:
            checks.clear()
            for gauge in (
                metrics.lag_records, metrics.lag_seconds, metrics.urls, metrics.clusters, metrics.due,
                metrics.journal_position, metrics.erasing,
            ):  # fmt: skip
                gauge.set_function(lambda: 0)

    def note_caught_up(self) -> None:
        """Report that all decisions were applied once."""
        self.health.checks["followed"] = lambda: True

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time one stage of the work."""
        with self.metrics.stage_seconds.labels(name).time():
            yield

    def note_told(self, records: Sequence[Due]) -> None:
        """Count records that are written."""
        for each in records:
            self.metrics.records.labels(each.record.because).inc()

    def note_scrub(self, ended: float, damaged: int) -> None:
        """Report the end of the last scrub, in seconds since the epoch, and the number of damaged files."""
        self.metrics.scrubbed.set(ended)
        self.metrics.damaged_files.set(damaged)

    def note_flush(self, state: State) -> None:
        """Update disk usage. Called in a thread."""
        self.metrics.state_bytes.set(state.store.disk_bytes())
        self.metrics.state_free_bytes.set(shutil.disk_usage(state.store.path).free)

"""Metrics and health of the elector."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from stream.elector.elector import Due
from stream.elector.state import State
from stream.ops.elapsed import Elapsed
from stream.ops.metrics import ElectorMetrics
from stream.ops.watch import Watch
from stream.states.follower import Follower


class ElectorWatch(Watch[ElectorMetrics]):
    """Collects metrics and health of an elector, partly on demand from the open state."""

    def __init__(self) -> None:
        super().__init__(ElectorMetrics())

    @contextmanager
    def following(self, state: State, follower: Follower) -> Iterator[None]:
        """Watch an open state while entered."""
        metrics, checks, show = self.metrics, self.health.checks, self.show
        follower.on_iteration = self.health.turn
        checks["broker"] = follower.decisions.reach
        checks["journal"] = lambda: not follower.journal.is_unreachable
        checks["followed"] = lambda: False

        def lag() -> float:
            is_behind = follower.remaining and state.meta.time
            return max(0.0, time.time() - state.meta.time / 1000) if is_behind else 0.0

        show(metrics.lag_records, lambda: follower.remaining)
        show(metrics.lag_seconds, lag)
        show(metrics.urls, lambda: state.meta.urls)
        show(metrics.clusters, lambda: state.meta.clusters)
        show(metrics.due, lambda: state.meta.due)
        show(metrics.journal_position, lambda: state.meta.applied)
        show(metrics.erasing, Elapsed(lambda: not state.is_erased))
        try:
            yield
        finally:
            self.release()

    def note_caught_up(self) -> None:
        """Report that all decisions were applied once."""
        self.health.checks["followed"] = lambda: True

    def note_told(self, records: Sequence[Due]) -> None:
        """Count records that are written."""
        for each in records:
            self.metrics.records.labels(each.record.because).inc()

"""Metrics, health and log of the trimmer."""

from __future__ import annotations

import time

import structlog

from stream.ops.metrics import TrimMetrics
from stream.ops.watch import Watch
from stream.roles.trimmer.trim import EXPECTED, REASONS, Hold, Outcome

log = structlog.get_logger(__name__)


class TrimWatch(Watch[TrimMetrics]):
    """Reports what each trim did."""

    def __init__(self, keep: float, every: float) -> None:
        """Both in seconds."""
        super().__init__(TrimMetrics())
        self.metrics.keep.set(keep)
        self.metrics.interval.set(every)
        self.metrics.completed.set(time.time())
        for reason in REASONS:
            self.metrics.held.labels(reason)
        self._answered = False
        self.health.checks["answered"] = lambda: self._answered

    def note(self, outcome: Outcome) -> None:
        """Report a trim."""
        metrics = self.metrics
        for each in outcome.logs:
            topic = each.topic.rpartition(".")[2]
            metrics.deleted.labels(topic).inc(each.start - each.before)
            metrics.log_start.labels(topic).set(each.start)
            metrics.log_end.labels(topic).set(each.end)
            metrics.oldest.labels(topic).set(each.oldest / 1000)
        metrics.verified.set(outcome.verified_time / 1000)
        metrics.damaged.set(len(outcome.damaged))
        if not outcome.has_problem:
            metrics.completed.set(time.time())
        self._note_hold(outcome.held, answered=True)
        for reason in (*outcome.unused, *outcome.damaged):
            log.warning("checkpoint_refused", reason=reason)
        log.info(
            "trimmed",
            **{each.topic.rpartition(".")[2]: [each.before, each.start, each.end] for each in outcome.logs},
            held=outcome.held.reason,
            why=outcome.held.text,
            verified=outcome.verified,
        )

    def note_failure(self, hold: Hold) -> None:
        """Report a trim that the store or brokers did not answer."""
        self._note_hold(hold, answered=False)
        log.warning("trim_failed", held=hold.reason, error=hold.text)

    def _note_hold(self, hold: Hold, *, answered: bool) -> None:
        self._answered = answered
        for reason in REASONS:
            self.metrics.held.labels(reason).set(reason == hold.reason)
        self.health.trouble = None if hold.reason in EXPECTED else hold.text

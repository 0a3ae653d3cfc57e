"""Metrics and health of the judge."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager

import numpy as np

from stream.judge.batch import Entry
from stream.judge.judged_batch import JudgedBatch
from stream.judge.state.state import State
from stream.kafka.election import Election
from stream.kafka.reader import JournalReader
from stream.messages.verdict import Verdict
from stream.ops.elapsed import Elapsed
from stream.ops.metrics import JudgeMetrics
from stream.ops.watch import Watch
from stream.roles.judge.append_times import AppendTimes
from stream.states.follower import JudgeFollower
from stream.tables.tables import TablesStats


class JudgeWatch(Watch[JudgeMetrics]):
    """Collects metrics and health of a judge, partly on demand from the open state."""

    def __init__(self) -> None:
        super().__init__(JudgeMetrics())
        self._at_hand: list[Sequence[Entry]] = []
        self._probed = TablesStats()
        self._election: Election | None = None
        self._answers = 0
        self._append_times = AppendTimes(self.metrics.ahead)
        self._broker: Callable[[], int | None] = lambda: None

    @asynccontextmanager
    async def opened(
        self, opening: AbstractAsyncContextManager[JudgeFollower]
    ) -> AsyncIterator[JudgeFollower]:
        """Open a follower, and watch it until it is closed."""
        async with self.excused("opening the state", opening) as follower:
            try:
                self._watch(follower)
                yield follower
            finally:
                self.release()
                self.metrics.leading.set(0)

    def _watch(self, follower: JudgeFollower) -> None:
        metrics, state, show = self.metrics, follower.state, self.show
        follower.on_iteration = self.health.turn
        self.health.checks["broker"] = follower.decisions.reach
        self.health.checks["journal"] = lambda: not follower.journal.is_unreachable
        self.health.checks["replayed"] = lambda: False
        self.health.checks["assigned"] = lambda: False
        show(metrics.journal_position, lambda: state.meta.applied)
        show(metrics.replay_remaining, lambda: follower.remaining)
        show(metrics.anchors.labels("ram"), lambda: state.tables.stats.hot_anchors)
        show(metrics.anchors.labels("rocksdb"), lambda: state.tables.stats.cold_anchors)
        show(metrics.dead_anchors, lambda: state.tables.stats.dead_anchors)
        show(metrics.generations, lambda: state.tables.stats.generations)
        show(metrics.log_time, lambda: state.time / 1000)
        show(metrics.erasing, Elapsed(lambda: not state.is_erased))
        if (window := state.window) is not None:
            metrics.lifetime.set(window.lifetime / 1000)
            show(metrics.oldest_page, lambda: max(0, window.expiry.oldest) / 1000)
            show(metrics.late_pages, lambda: window.expiry.late_pages)
            show(metrics.late, lambda: window.expiry.late / 1000)
        self._probed = state.tables.stats

    def stands_by(self, election: Election) -> None:
        """Report that the state has caught up and the judge takes part in the election."""
        self.health.checks["replayed"] = lambda: True
        self._election = election
        self.health.checks["assigned"] = self._count_assignments

    def _count_assignments(self) -> bool:
        """Count assignments by the group since the last call. Returns whether there was any."""
        answers = self._election.answers if self._election else 0
        self.metrics.rebalances.inc(answers - self._answers)
        self._answers = answers
        return answers > 0

    def note_leading(self, journal: JournalReader) -> None:
        """Report that this judge leads."""
        self._count_assignments()
        self.metrics.leading.set(1)
        self.metrics.replay_remaining.set_function(lambda: 0)  # later decisions are its own
        self.show(self.metrics.lag_records, lambda: sum(map(len, self._at_hand)) + journal.remaining)
        self.show(self.metrics.lag_seconds, lambda: self._lag(journal))
        self._broker = lambda: journal.leader

    def _lag(self, journal: JournalReader) -> float:
        since = self._at_hand[0][0].time if self._at_hand else journal.waiting_since
        return 0.0 if since is None else max(0.0, time.time() - since / 1000)

    @contextmanager
    def batch(self, entries: Sequence[Entry]) -> Iterator[None]:
        """Report that these journal records are being judged while entered."""
        self._at_hand.append(entries)
        with self.metrics.batch_seconds.time():
            yield
        del self._at_hand[0]  # batches end in the order in which they began

    def note_batch(self, decided: JudgedBatch, gaps: int) -> None:
        """Count a batch whose transaction is committed."""
        metrics, batch, judged = self.metrics, decided.batch, decided.verdicts
        metrics.consumed.inc(len(decided.entries))
        metrics.batch_rows.observe(len(batch))
        for verdict, count in decided.counts.items():
            metrics.verdicts.labels(verdict).inc(count)
        if Verdict.REJECTED in judged.columns.verdict:
            for reason, count in Counter(batch.reason.values()).items():
                metrics.rejects.labels(reason).inc(count)
        metrics.candidates.labels("verified").inc(judged.verified)
        metrics.candidates.labels("refused").inc(judged.candidates - judged.verified)
        if fingerprinted := int((judged.columns.verdict <= Verdict.RECRAWL).sum()):
            metrics.candidates_per_page.observe(judged.candidates / fingerprinted)
        metrics.superseded.inc(len(judged.superseded))
        for outcome, count in decided.orphans.items():
            metrics.orphans.labels(outcome).inc(count)
        metrics.full_buckets.inc(decided.crowding["full_buckets"])
        metrics.cut_lists.inc(decided.crowding["cut_lists"])
        metrics.redelivered.inc(decided.admission.redelivered)
        metrics.source_gaps.set(gaps)
        self._append_times.note(decided, self._broker)
        self._age(decided)
        self._count_assignments()

    def note_turn(self, expired: int, carried: int) -> None:
        """Count pages that expired in a turn whose transaction is committed, and those of them that were
        carried."""
        self.metrics.expired.labels("carried").inc(carried)
        self.metrics.expired.labels("gone").inc(expired - carried)

    def note_requests(self, waiting: int, oldest: int) -> None:
        """Report how many requests wait to be decided, and the append time of the oldest of them in
        milliseconds since the epoch, which is arbitrary without any."""
        self.show(self.metrics.requests_waiting, lambda: waiting)
        self.show(self.metrics.request_age, lambda: max(0.0, time.time() - oldest / 1000) if waiting else 0.0)

    def _age(self, decided: JudgedBatch) -> None:
        """Observe the age of the oldest page of each range with admitted rows."""
        now, ranges = time.time(), decided.batch.ranges
        for place in np.unique(decided.batch.source).tolist():
            if published := ranges[place].published:
                self.metrics.event_age.observe(max(0.0, now - published / 1000))

    def note_probes(self, state: State) -> None:
        """Count probes since the last call."""
        stats, probes = state.tables.stats, self.metrics.probes
        probes.labels("ram").inc(stats.hot_probes - self._probed.hot_probes)
        probes.labels("rocksdb").inc(stats.rocks_probes - self._probed.rocks_probes)
        self._probed = stats

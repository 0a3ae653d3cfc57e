"""Publishes turns between batches, as long as a judge leads and pages have a lifetime (rule 23)."""

from __future__ import annotations

import time

import structlog

from stream.failpoints import reach
from stream.judge.batch import Entry
from stream.judge.judge import Judge
from stream.judge.log_time import AHEAD_MS
from stream.judge.turns import turn_time
from stream.kafka.in_flight import in_thread
from stream.roles.judge.transaction import VerdictPublisher
from stream.roles.judge.watch import JudgeWatch

log = structlog.get_logger(__name__)


class Turns:
    """The turns of a leading judge, and what append times count at most (rule 15)."""

    def __init__(self, judge: Judge, publisher: VerdictPublisher, watch: JudgeWatch) -> None:
        self._judge, self._publisher, self._watch = judge, publisher, watch
        self._cap, self._offset = 0, -1

    def cap(self, entry: Entry) -> int:
        """Return what append times count at most from this journal record on, the next one to decide, in
        milliseconds since the epoch.

        It stays the same until the record is decided. So a turn that takes longer than a slot is not followed
        by another one, without end, where the clock of a broker is ahead.
        """
        if entry.offset != self._offset:
            self._cap, self._offset = time.time_ns() // 1_000_000 + AHEAD_MS, entry.offset
        return self._cap

    def is_due(self, entry: Entry) -> bool:
        """Whether a turn is due before this journal record, the next one to decide."""
        return turn_time(self._judge.state, entry, self.cap(entry)) is not None

    async def publish(self, entry: Entry) -> None:
        """Decide the turn that is due before this journal record, publish it and apply it. No transaction may
        be in flight. Any error must end the judge."""
        judge = self._judge
        with self._watch.stage("turn"):
            record = await in_thread(judge.decide_turn, entry, self.cap(entry))
            assert record is not None  # noqa: S101 (one is due)
            assert record.turn is not None  # noqa: S101 (a turn)
            reach("turn.decided")
            before, ended = judge.state.first, await in_thread(judge.ended_clusters, record)
            offset, _ = await self._publisher.publish_removal(record, ended, "turn.sent")
            reach("turn.committed")
            await in_thread(judge.apply_apart, record, offset)
            reach("turn.applied")
        turn = record.turn
        expired, carried = sum(turn.oldest) - sum(before), (len(turn.anchors) + len(turn.duplicates)) // 8
        self._watch.note_turn(expired, carried)
        if expired or record.cap is not None:
            log.info(
                "turn",
                offset=offset,
                expired=expired,
                carried=carried,
                behind=judge.state.window is not None and judge.state.window.is_behind,
            )

"""Publishes the ledger between batches, as long as a judge leads."""

from __future__ import annotations

import time

import structlog

from stream.failpoints import reach
from stream.judge.judge import Judge
from stream.judge.ledger_records import ledger_records
from stream.kafka.in_flight import in_thread
from stream.kafka.topic_plan import DECISIONS_BYTES
from stream.roles.judge.transaction import VerdictPublisher
from stream.roles.judge.watch import JudgeWatch

log = structlog.get_logger(__name__)


class LedgerRecords:
    """The ledger records of a leading judge: one when it begins to lead, one in each interval, and one before
    a requested checkpoint; none if nothing was decided since the last one."""

    def __init__(self, seconds: float, judge: Judge, publisher: VerdictPublisher, watch: JudgeWatch) -> None:
        self._seconds, self._judge, self._publisher, self._watch = seconds, judge, publisher, watch
        self._due = 0.0
        ledger = judge.state.meta.ledger
        self._complete = ledger + 1 if ledger else 0
        """`decided` of the state when the ledger was as in the last record, if that is a single one."""
        self._request: str | None = None
        """The last request that was seen."""

    def is_due(self, request: str | None) -> bool:
        """Whether a ledger record is due. `request` names the request for a checkpoint that waits."""
        requested = request is not None and request != self._request
        return self._judge.state.meta.decided != self._complete and (
            requested or time.monotonic() >= self._due
        )

    async def publish(self, request: str | None) -> None:
        """Publish the ledger and apply it. No transaction may be in flight. Any error must end the judge."""
        with self._watch.stage("ledger"):
            judge = self._judge
            records = await in_thread(ledger_records, judge.state, judge.genesis, DECISIONS_BYTES)
            offsets = await self._publisher.publish_ledger(records)
            for record, offset in zip(records, offsets, strict=True):
                await in_thread(judge.apply_apart, record, offset)
            reach("judge.ledger_applied")
        self._due, self._request = time.monotonic() + self._seconds, request
        self._complete = judge.state.meta.decided
        log.info("ledger", offset=offsets[0], records=len(records), applied=judge.state.meta.applied)

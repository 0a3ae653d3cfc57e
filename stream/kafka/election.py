"""Leader election: the judge that is assigned the journal's partition in the judges' group leads (rule 12).

The group consumer is for membership only and never reads records. Its committed offset only serves lag tools,
so it is committed periodically, outside the transactions, of which it would take a third of the time. Kafka
detects dead members, and the leader's transactional id fences its predecessor.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Final

import structlog
from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError

from stream.futures import retrieved
from stream.kafka import clients
from stream.kafka.client_owner import ClientOwner
from stream.settings import Settings

COMMIT_SECONDS: Final = 1.0
"""Interval of commits."""
LAST_SECONDS: Final = 3.0
"""Time-out of the last commit."""
log = structlog.get_logger(__name__, role="judge")


class Election(ConsumerRebalanceListener, ClientOwner):  # type: ignore[misc]
    """Takes part in the election while entered. The events `won` and `lost` report its outcome."""

    def __init__(self, settings: Settings, group: str, topic: str, instance: str | None) -> None:
        """`instance` is a static member id, by which a judge restarted within its session keeps its
        assignment."""
        self.won, self.lost = asyncio.Event(), asyncio.Event()
        self.answers = 0
        """Number of assignments by the group."""
        self._settings, self._topic = settings, topic
        self._judged = self._committed = 0
        self._committed_at = 0.0
        self._committing: asyncio.Task[None] | None = None
        self._group, self._instance = group, instance

    async def attend(self) -> None:
        """Poll the group; must be called regularly. Raises errors of the group.

        aiokafka reports errors of the group only when polled, and leaves the group if it is never polled.
        """
        await self._consumer.getmany(timeout_ms=0)
        if self._committing is not None and self._committing.done():
            self._committing.result()
            self._committing = None
        idle = self._committing is None
        if idle and self._judged > self._committed and time.monotonic() - self._committed_at > COMMIT_SECONDS:
            self._committing = retrieved(asyncio.create_task(self._commit()))

    def note_judged(self, end: int) -> None:
        """Record that this judge has judged the journal up to offset `end`."""
        self._judged = end

    async def _commit(self) -> None:
        end = self._judged
        self._committed_at = time.monotonic()
        try:
            await self._consumer.commit({TopicPartition(self._topic, 0): end})
        except KafkaError as error:  # `attend` raises group errors; nothing depends on the offset
            log.warning("offset_not_committed", offset=end, error=str(error))
        else:
            self._committed = end

    async def committed_offset(self) -> int:
        """Return the committed journal offset, or 0 for none."""
        return await self._consumer.committed(TopicPartition(self._topic, 0)) or 0

    async def _open(self, stack: AsyncExitStack) -> None:
        # aiokafka's sticky assignor stores the member's assignment on its class. Several judges in one
        # process would claim each other's assignment, so each gets its own class.
        sticky = type("Sticky", (StickyPartitionAssignor,), {})
        self._consumer = clients.consumer(
            self._settings,
            group_id=self._group,
            group_instance_id=self._instance,
            partition_assignment_strategy=(sticky,),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=int(self._settings.session_seconds * 1000),
            heartbeat_interval_ms=int(self._settings.session_seconds * 1000 / 4),
            # Liveness is shown by heartbeats and the producer's epoch; a rebuild may take long.
            max_poll_interval_ms=24 * 3600 * 1000,
        )
        await stack.enter_async_context(clients.open_client(self._settings, self._consumer, patiently=True))
        self._consumer.subscribe([self._topic], listener=self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._committing is not None:
            if kind is not None:
                self._committing.cancel()
            await asyncio.wait([self._committing], timeout=LAST_SECONDS)
            self._committing.cancel()
        if kind is None and self._judged > self._committed:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._commit(), LAST_SECONDS)
        await super().__aexit__(kind, error, trace)

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Handle an assignment: this judge leads if it got the partition."""
        self.answers += 1
        if assigned:
            self._consumer.pause(*assigned)
            self.won.set()
        elif self.won.is_set():
            self.lost.set()

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Handle the start of a rebalance, after which the sticky assignor usually returns the partition."""

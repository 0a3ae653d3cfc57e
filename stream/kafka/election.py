"""Which judge leads: the one that holds the journal's partition in the judges' group (rule 12).

Membership only: the group consumer never reads a record, so no fetch position can go astray in a rebalance.
Kafka does the rest: it notices the dead, and the leader's transactional id fences its predecessor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import TracebackType
from typing import Self

from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from stream.kafka import clients
from stream.settings import Settings


class Election(ConsumerRebalanceListener):  # type: ignore[misc]
    """Takes part while entered; `won` and `lost` tell what happened."""

    def __init__(self, settings: Settings, group: str, topic: str, instance: str | None) -> None:
        """`instance` is a static member id: restarted within the session, a judge keeps its place."""
        self.won, self.lost = asyncio.Event(), asyncio.Event()
        self.answers = 0
        """How often the group said who leads."""
        self._topic = topic
        # aiokafka's assignor remembers on its class what its member holds: judges of one process, of one
        # namespace or of several, would each claim what another has. So each gets a class of its own.
        sticky = type("Sticky", (StickyPartitionAssignor,), {})
        self._consumer = clients.consumer(
            settings,
            group_id=group,
            group_instance_id=instance,
            partition_assignment_strategy=(sticky,),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=int(settings.session_seconds * 1000),
            heartbeat_interval_ms=int(settings.session_seconds * 1000 / 4),
            # Leading is proved by heartbeats and by the producer's epoch; a rebuild may take its time.
            max_poll_interval_ms=24 * 3600 * 1000,
        )

    async def attend(self) -> None:
        """Call it again and again: raises what went wrong in the group, and shows that we are not stuck.

        aiokafka parks errors of the group until somebody polls, and leaves it when nobody ever does.
        """
        await self._consumer.getmany(timeout_ms=0)

    async def judged_before(self) -> int:
        """The journal offset that some judge committed, 0 for none."""
        return await self._consumer.committed(TopicPartition(self._topic, 0)) or 0

    async def __aenter__(self) -> Self:
        await self._consumer.start()
        self._consumer.subscribe([self._topic], listener=self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._consumer.stop()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """The group's word: this judge leads, or it does not."""
        self.answers += 1
        if assigned:
            self._consumer.pause(*assigned)
            self.won.set()
        elif self.won.is_set():
            self.lost.set()

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """A rebalance begins; the sticky assignor normally gives the partition back."""

"""A prober's membership in its group: which partitions of the segments' topic are its own, and what is
announced there.

Kafka says who holds what. Rebalances of aiokafka are eager, i.e. all partitions are revoked and assigned
again; so what is held stays held until another assignment says otherwise.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple

import structlog
from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import IllegalStateError

from stream.errors import StateError
from stream.kafka import clients
from stream.kafka.client_owner import ClientOwner
from stream.kafka.member import sticky_assignor
from stream.kafka.names import TopicNames
from stream.messages.journal import Genesis
from stream.messages.segments import SegmentRecord, decode_segment
from stream.settings import Settings

POLL_MS: Final = 200
METADATA_MS: Final = 60_000
"""Metadata refresh interval, by which a topic that was made anew is found."""
log = structlog.get_logger(__name__, role="prober")


class Membership(ConsumerRebalanceListener, ClientOwner):  # type: ignore[misc]
    """Takes part in the group while entered."""

    def __init__(self, settings: Settings, genesis: Genesis, group: str, instance: str) -> None:
        """`instance` is a static member id, by which a prober that starts again within its session keeps its
        assignment."""
        self._settings, self._genesis, self._group, self._instance = settings, genesis, group, instance
        self._topic: Final = TopicNames(settings.namespace).segments
        self.rebalances = 0
        """Assignments by the group, including the first."""
        self._assigned: frozenset[TopicPartition] | None = None  # by the last callback
        self._own = frozenset[TopicPartition]()
        self._ends: dict[TopicPartition, int] | None = None
        """Where the own partitions ended when they were assigned; None before they are asked."""
        self._announced: dict[int, dict[int, _Announced]] = {}
        """Partition -> first number -> the newest record."""
        self._read: dict[int, int] = {}
        """Partition -> the next offset that is news. After each rebalance, all are read again."""

    async def _open(self, stack: AsyncExitStack) -> None:
        settings = self._settings
        self._consumer = clients.consumer(
            settings,
            group_id=self._group,
            group_instance_id=self._instance,
            partition_assignment_strategy=(sticky_assignor(),),
            auto_offset_reset="earliest",
            enable_auto_commit=False,  # nothing is committed: each assignment is read from the beginning
            session_timeout_ms=int(settings.session_seconds * 1000),
            heartbeat_interval_ms=int(settings.session_seconds * 1000 / 4),
            metadata_max_age_ms=METADATA_MS,
            # Heartbeats show that it is alive; loading may take long.
            max_poll_interval_ms=24 * 3600 * 1000,
        )
        await stack.enter_async_context(clients.open_client(settings, self._consumer, patiently=True))
        self._consumer.subscribe([self._topic], listener=self)

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Handle an assignment. It is read by `poll`."""
        self.rebalances += 1
        self._assigned = frozenset(assigned)

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Handle the start of a rebalance, after which the sticky assignor returns most partitions."""

    @property
    def partitions(self) -> int:
        """Number of assigned partitions."""
        return len(self._own)

    @property
    def is_known(self) -> bool:
        """Whether the group has answered, and all is read that was announced then."""
        return self._assigned is not None and self._ends is not None and not self._ends

    @property
    def segments(self) -> list[SegmentRecord]:
        """The segments that are announced in the own partitions, in order. Raises StateError for one of
        another journal or scheme, or in the wrong partition."""
        for partition, records in self._announced.items():
            for each in records.values():
                self._refuse_other(each, partition)
        every = [each.record for records in self._announced.values() for each in records.values()]
        return sorted(every, key=lambda each: each.first)

    def _refuse_other(self, announced: _Announced, partition: int) -> None:
        (where, record), genesis = announced, self._genesis
        if record.journal != genesis.journal:
            raise StateError(f"{where}: is of journal {record.journal}, not {genesis.journal}")
        if record.scheme != genesis.scheme_id:
            raise StateError(f"{where}: is of scheme {record.scheme}, not {genesis.scheme_id}")
        if record.partition != partition:
            raise StateError(
                f"{where}: anchors [{record.first}, {record.end}) belong in partition {record.partition}"
            )

    async def poll(self) -> bool:
        """Read what is announced, waiting briefly. Returns whether something has changed. Raises errors of
        the group, and RecordError."""
        changed = await self._take_over()
        fetched = await self._consumer.getmany(timeout_ms=POLL_MS)
        for key, records in fetched.items():  # perhaps of partitions that were assigned just now
            for record in records:
                changed |= self._note(key.partition, record)
        if self._ends:
            for key, end in list(self._ends.items()):
                if await self._position(key) >= end:
                    del self._ends[key]
            changed |= not self._ends
        return changed

    async def _position(self, key: TopicPartition) -> int:
        """Where reading has come, -1 during a rebalance."""
        try:
            position: int = await self._consumer.position(key)
        except IllegalStateError:
            return -1
        return position

    async def _take_over(self) -> bool:
        """Take over an assignment. Returns whether it is another one."""
        assigned = self._assigned
        if assigned is None or (assigned == self._own and self._ends is not None):
            return False
        self._own = assigned
        numbers = {key.partition for key in assigned}
        self._announced = {of: each for of, each in self._announced.items() if of in numbers}
        self._read = {of: each for of, each in self._read.items() if of in numbers}
        self._ends = await self._consumer.end_offsets(list(assigned)) if assigned else {}
        log.info("assigned", partitions=sorted(numbers))
        return True

    def _note(self, partition: int, record: Any) -> bool:
        """Note an announcement. Returns whether it is news."""
        if record.offset < self._read.get(partition, 0):
            return False
        self._read[partition] = record.offset + 1
        where = f"topic {self._topic} partition {partition} offset {record.offset}"
        segment = decode_segment(record.key, record.value, where)
        records = self._announced.setdefault(partition, {})
        if isinstance(segment, int):
            return records.pop(segment, None) is not None
        before = records.get(segment.first)
        records[segment.first] = _Announced(where, segment)
        return before is None or before.record != segment


class _Announced(NamedTuple):
    where: str
    """Topic, partition and offset."""
    record: SegmentRecord

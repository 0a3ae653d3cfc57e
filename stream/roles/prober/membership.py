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

from stream.errors import StaleError, StateError
from stream.kafka import clients
from stream.kafka.client_owner import ClientOwner
from stream.kafka.member import sticky_assignor
from stream.kafka.names import TopicNames
from stream.kafka.outage import retry_until_answered
from stream.messages.journal import Genesis
from stream.messages.segments import SegmentRecord, decode_segment, refuse_other_origin
from stream.settings import Settings

POLL_MS: Final = 200
METADATA_MS: Final = 60_000
"""Metadata refresh interval, by which a topic that was made anew is found."""
log = structlog.get_logger(__name__, role="prober")


class Membership(ConsumerRebalanceListener, ClientOwner):  # type: ignore[misc]
    """Takes part in the group while entered."""

    def __init__(self, settings: Settings, genesis: Genesis, group: str, instance: str, holder: str) -> None:
        """`instance` is a static member id, by which a prober that starts again within its session keeps its
        assignment. `holder` is the client id by which Kafka's description of the group names it, as its
        answers do."""
        self._settings, self._genesis, self._group = settings, genesis, group
        self._instance, self._holder = instance, holder
        self._topic: Final = TopicNames(settings.namespace).segments
        self.rebalances = 0
        """Assignments by the group, including the first."""
        self._assigned: frozenset[TopicPartition] | None = None  # by the last callback
        self._own = frozenset[TopicPartition]()
        self._ends: dict[TopicPartition, int] | None = None
        """Where the own partitions ended when they were assigned, of those that are not read up to there yet;
        None before they are asked."""
        self._announced: dict[int, dict[int, _Announced]] = {}
        """Partition -> first number -> the newest record."""
        self._fresh: dict[int, dict[int, _Announced]] = {}
        """The same, as far as it was read, of partitions that are read from their beginning. After each
        rebalance, all are; so a topic that was made anew is read as it is."""
        self._is_news = False
        """Whether something has changed that `poll` did not tell."""
        self._read: dict[int, int] = {}
        """Partition -> the next offset, since it was assigned."""

    async def _open(self, stack: AsyncExitStack) -> None:
        settings = self._settings
        self._consumer = clients.consumer(
            settings,
            client_id=self._holder,
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
        self._assigned, self._ends = frozenset(assigned), None
        self._fresh, self._read = {key.partition: {} for key in assigned}, {}

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
        where, record = announced
        refuse_other_origin(record, self._genesis, where)
        if record.partition != partition:
            raise StateError(
                f"{where}: anchors [{record.first}, {record.end}) belong in partition {record.partition}"
            )

    async def poll(self) -> bool:
        """Read what is announced, waiting briefly. Returns whether something has changed, once all is known.
        Raises errors of the group, RecordError, and StaleError if the topic was made anew."""
        await self._take_over()
        fetched = await self._consumer.getmany(timeout_ms=POLL_MS)
        for key, records in fetched.items():  # perhaps of partitions that were assigned just now
            for record in records:
                self._is_news |= self._note(key.partition, record)
        for key, end in list((self._ends or {}).items()):
            if await self._position(key) >= end and self._ends:
                del self._ends[key]
                self._is_news |= self._replace(key.partition)
        if not self.is_known:
            return False
        news, self._is_news = self._is_news, False
        return news

    def _replace(self, partition: int) -> bool:
        """Take over what is announced in a partition, which was read from its beginning. Returns whether that
        is news."""
        before, fresh = self._announced.get(partition), self._fresh.pop(partition)
        self._announced[partition] = fresh
        return before is None or _records_of(before) != _records_of(fresh)

    async def _position(self, key: TopicPartition) -> int:
        """Where reading has come, -1 during a rebalance."""
        try:
            position: int = await self._consumer.position(key)
        except IllegalStateError:
            return -1
        return position

    async def _take_over(self) -> None:
        """Take over an assignment."""
        assigned = self._assigned
        if assigned is None or self._ends is not None:
            return
        self._is_news |= assigned != self._own or not assigned
        self._own = assigned
        numbers = {key.partition for key in assigned}
        self._announced = {of: each for of, each in self._announced.items() if of in numbers}
        ends = await retry_until_answered(f"topic {self._topic}", lambda: self._ends_of(assigned))
        if assigned is self._assigned:  # or another one came meanwhile
            self._ends = ends
            log.info("assigned", partitions=sorted(numbers))

    async def _ends_of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where partitions end; nothing if others are assigned by now. Raises BrokerError if brokers do not
        answer."""
        if not partitions or partitions is not self._assigned:
            return {}
        with clients.translated_errors():
            ends: dict[TopicPartition, int] = await self._consumer.end_offsets(list(partitions))
        return ends

    def _note(self, partition: int, record: Any) -> bool:
        """Note an announcement. Returns whether it is news."""
        where = f"topic {self._topic} partition {partition} offset {record.offset}"
        if record.offset < self._read.get(partition, 0):
            raise StaleError(
                f"{where}: comes after offset {self._read[partition] - 1}: the topic was made anew"
            )
        self._read[partition] = record.offset + 1
        segment = decode_segment(record.key, record.value, where)
        fresh = self._fresh.get(partition)
        records = self._announced.setdefault(partition, {}) if fresh is None else fresh
        if isinstance(segment, int):
            return records.pop(segment, None) is not None and fresh is None
        before = records.get(segment.first)
        records[segment.first] = _Announced(where, segment)
        return fresh is None and (before is None or before.record != segment)


def _records_of(announced: dict[int, _Announced]) -> dict[int, SegmentRecord]:
    return {first: each.record for first, each in announced.items()}


class _Announced(NamedTuple):
    where: str
    """Topic, partition and offset."""
    record: SegmentRecord

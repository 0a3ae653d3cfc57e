"""The topic of segments: which sealed ranges of anchors are announced, and their announcement."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from stream.errors import BrokerError
from stream.kafka import clients
from stream.kafka.client_owner import ClientOwner
from stream.kafka.names import TopicNames, record_name
from stream.messages.journal import Genesis
from stream.messages.segments import (
    PARTITIONS,
    SegmentRecord,
    decode_segment,
    encode_segment,
    refuse_other_origin,
)
from stream.settings import Settings

POLL_MS: Final = 200
READ_AT_ONCE: Final = 512
ASK_SECONDS: Final = 10.0
"""Time-out of a read of the topic, and of an announcement. Whoever waits may be about to end, and the next
checkpoint tries again."""


class AnnouncedSegments(ClientOwner):
    """Reads the topic of segments from its beginning. One task uses it."""

    def __init__(self, settings: Settings, genesis: Genesis) -> None:
        """`genesis` is that of the journal to which all announced segments belong."""
        self.topic: Final = TopicNames(settings.namespace).segments
        self._settings, self._genesis = settings, genesis
        self._partitions = [TopicPartition(self.topic, each) for each in range(PARTITIONS)]
        self._records = dict[int, SegmentRecord]()

    async def _open(self, stack: AsyncExitStack) -> None:
        self._consumer = clients.reader(self._settings, auto_offset_reset="earliest")
        await self._enter(stack, self._consumer)
        self._consumer.assign(self._partitions)

    async def _enter(self, stack: AsyncExitStack, client: Any) -> None:
        await stack.enter_async_context(clients.open_client(self._settings, client, patiently=True))

    async def read(self) -> Mapping[int, SegmentRecord]:
        """Return the announced segments by their first anchors, as of now.

        Raises BrokerError if brokers do not answer, RecordError for what is no announcement, and StateError
        for that of another journal or scheme.
        """
        consumer = self._consumer
        async with self._limit():
            ends = await consumer.end_offsets(self._partitions)
            while waiting := [
                each for each in self._partitions if ends[each] and await consumer.position(each) < ends[each]
            ]:
                fetched = await consumer.getmany(*waiting, timeout_ms=POLL_MS, max_records=READ_AT_ONCE)
                for records in fetched.values():
                    for each in records:
                        self._note(each)
        return dict(self._records)

    def _note(self, record: Any) -> None:
        where = record_name(record)
        segment = decode_segment(record.key, record.value, where)
        if isinstance(segment, int):
            self._records.pop(segment, None)
        else:
            refuse_other_origin(segment, self._genesis, where)
            self._records[segment.first] = segment

    @asynccontextmanager
    async def _limit(self) -> AsyncIterator[None]:
        """Raise BrokerError if brokers do not answer in time."""
        try:
            async with asyncio.timeout(ASK_SECONDS):
                yield
        except clients.DENIED:
            raise
        except (TimeoutError, KafkaError) as error:
            raise BrokerError(f"topic {self.topic}: its brokers do not answer ({error!r})") from None


class SegmentAnnouncer(AnnouncedSegments):
    """Reads the topic of segments, and writes to it."""

    async def _open(self, stack: AsyncExitStack) -> None:
        await super()._open(stack)
        self._producer = clients.producer(self._settings, enable_idempotence=True, acks="all")
        await self._enter(stack, self._producer)

    async def announce(self, record: SegmentRecord) -> None:
        """Announce a segment, in place of what was announced of it. Raises BrokerError."""
        await self._write(record, encode_segment(record))

    async def withdraw(self, record: SegmentRecord) -> None:
        """Announce that a segment has expired. Raises BrokerError."""
        await self._write(record, None)

    async def _write(self, record: SegmentRecord, value: bytes | None) -> None:
        async with self._limit():
            await self._producer.send_and_wait(self.topic, value, key=record.key, partition=record.partition)

"""Where the log of a topic with one partition starts: by time, and moved by DeleteRecords.

aiokafka's admin client has both, but its errors name neither topic nor operation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeVar

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    KafkaError,
    NotLeaderForPartitionError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.protocol.admin import DeleteRecordsRequest
from aiokafka.protocol.offset import OffsetRequest

from stream.errors import BrokerError, StaleError, TopicError, UnsoundTopicError
from stream.kafka import broker_metadata

REPLICAS_MS: Final = 20_000
"""How long a leader waits until all replicas have moved their start as well."""
BROKERS_APART_MS: Final = 60_000
"""How far the clocks of two brokers may be apart, each of which stamps a topic."""
NOWHERE: Final = -1
"""The offset that a leader answers if there is no such record."""
T = TypeVar("T")


class TimedOffset(NamedTuple):
    """A record's offset and append time."""

    offset: int
    time: int
    """In milliseconds since the epoch."""


async def first_since(client: AIOKafkaClient, topic: str, time: int) -> TimedOffset | None:
    """Return the first record that was appended at `time` (milliseconds since the epoch) or later; None if
    there is none. Raises TopicError for a missing topic, and BrokerError."""

    async def ask(leader: int) -> TimedOffset | None:
        answer = await client.send(leader, OffsetRequest(-1, 0, [(topic, [(0, time)])]))
        _, code, appended, offset = answer.topics[0][1][0]
        _raise(code, topic, "(Describe)")
        return None if offset == NOWHERE else TimedOffset(offset, appended)

    return await _at_leader(client, topic, f"the first record since {time}", ask)


async def delete_records(client: AIOKafkaClient, topic: str, before: int) -> int:
    """Delete all records of a topic below offset `before`, and return the lowest log start of its replicas.

    Repeating it changes nothing, and so does an offset that is deleted already. Raises AccessError through
    `clients.translated_errors`, UnsoundTopicError if the topic is compacted, StaleError if the log ends
    before `before`, and BrokerError if the leader does not answer or a replica does not follow; the leader's
    log may be shorter then.
    """

    async def ask(leader: int) -> int:
        answer = await client.send(leader, DeleteRecordsRequest([(topic, [(0, before)])], REPLICAS_MS))
        _, start, code, *_ = answer.topics[0][1][0]
        if code == PolicyViolationError.errno:
            raise UnsoundTopicError(f"topic {topic}: its cleanup.policy must be delete to trim it")
        if code == OffsetOutOfRangeError.errno:
            raise StaleError(f"topic {topic}: ends before offset {before}: it was recreated, or lost records")
        if code == RequestTimedOutError.errno:
            raise BrokerError(
                f"topic {topic}: trimmed up to {before}, but a replica does not follow within"
                f" {REPLICAS_MS // 1000} s"
            )
        _raise(code, topic, "(Delete)")
        return int(start)

    return await _at_leader(client, topic, f"records below {before}", ask)


def _raise(code: int, topic: str, operation: str) -> None:
    if code == TopicAuthorizationFailedError.errno:
        raise TopicAuthorizationFailedError(topic, operation)
    if code:
        raise for_code(code)(topic)


async def _at_leader(client: AIOKafkaClient, topic: str, what: str, ask: Callable[[int], Awaitable[T]]) -> T:
    """Return what the leader answers, which is looked up anew at each attempt."""
    deadline = asyncio.get_running_loop().time() + broker_metadata.RETRY_SECONDS
    while True:
        described = (await broker_metadata.metadata(client, [topic])).topics.get(topic)
        if described is None:
            raise TopicError(f"no such topic: {topic}")
        leader = described.partitions[0].leader
        try:
            if leader < 0:
                raise NotLeaderForPartitionError(topic)
            return await ask(leader)
        except KafkaError as error:
            if not error.retriable:
                raise
            if asyncio.get_running_loop().time() > deadline:
                raise BrokerError(f"topic {topic}: {what}: {error!r}") from error
        await asyncio.sleep(broker_metadata.PAUSE_SECONDS)
        await client.force_metadata_update()

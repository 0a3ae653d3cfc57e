"""Records of compacted topics that forgetting has replaced, and that Kafka has not removed yet.

In place of a record that names a forgotten page there is a later one with its key: a tombstone on
`clusters`, or one that says `forgotten` on `best`. The record before stays until Kafka compacts the segment
it is in, which the active one never is.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition

from stream.kafka import broker_metadata, clients
from stream.settings import Settings

CLOCK_MS: Final = 3_600_000
"""How far the clock of a judge or elector, which stamps these topics, may be behind that of a broker, which
stamps requests."""
_RECORDS_AT_ONCE: Final = 500


async def count_replaced(settings: Settings, topic: str, since: int) -> int:
    """Return how many records a topic still has in place of which forgetting has put later ones. `since` is
    when the first request was appended, in milliseconds since the epoch.

    Reads what came after `since`, and the whole topic if anything was replaced. Raises TopicError for a
    missing topic, TopicAuthorizationFailedError for one that may not be read, and BrokerError.
    """
    async with broker_metadata.connect(settings) as client:
        bounds = await broker_metadata.log_bounds(client, [topic])
    ends = {key: each.stable for key, each in bounds.items() if each.start < each.stable}
    if not ends:
        return 0
    consumer = clients.reader(settings, auto_offset_reset="earliest", max_partition_fetch_bytes=8 << 20)
    async with clients.open_client(settings, consumer):
        later = await consumer.offsets_for_times(dict.fromkeys(ends, max(0, since - CLOCK_MS)))
        starts = {key: each.offset for key, each in later.items() if each is not None}
        replaced = dict[tuple[TopicPartition, bytes | None], int]()
        """Partition and key of records that replace others, and the offset of the last one."""
        async with aclosing(_records(consumer, starts, ends)) as records:
            async for at, each in records:
                if _replaces(each):
                    replaced[at, each.key] = each.offset
        ends = {at: 1 + max(replaced[each] for each in replaced if each[0] == at) for at, _ in replaced}
        count = 0
        async with aclosing(_records(consumer, {at: bounds[at].start for at in ends}, ends)) as records:
            async for at, each in records:
                count += each.value is not None and each.offset < replaced.get((at, each.key), 0)
    return count


async def _records(
    consumer: AIOKafkaConsumer, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> AsyncGenerator[tuple[TopicPartition, Any], None]:
    """Yield the committed records of partitions between two offsets, with their partitions."""
    left = {at for at, start in starts.items() if start < ends[at]}
    consumer.assign(left)
    for at in left:
        consumer.seek(at, starts[at])
    while left:
        fetched = await consumer.getmany(*left, timeout_ms=200, max_records=_RECORDS_AT_ONCE)
        for at, records in fetched.items():
            for each in records:
                if each.offset < ends[at]:
                    yield at, each
        left = {at for at in left if await consumer.position(at) < ends[at]}


class _Record(msgspec.Struct):
    because: str = ""


def _replaces(record: Any) -> bool:
    """Whether a record stands in place of one that named a forgotten page."""
    try:
        return record.value is None or _DECODER.decode(record.value).because == "forgotten"
    except msgspec.DecodeError:  # somebody else's, which replaces nothing of ours
        return False


_DECODER: Final = msgspec.json.Decoder(_Record)

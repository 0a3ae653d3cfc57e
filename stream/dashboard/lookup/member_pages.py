"""The messages of judged pages, read from the pages topic by their position.

neardup stores fingerprints, not texts. As long as retention keeps a page's message, it can be read again.
"""

from __future__ import annotations

from typing import Final

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition

from stream.children.pool import ChildPool
from stream.dashboard.answers import Comparison
from stream.errors import NeardupError
from stream.fingerprint.row import Row
from stream.judge.explain.shingle_diff import ShingleDiff
from stream.kafka import broker_metadata, clients
from stream.kafka.names import TopicNames
from stream.messages.verdict import MessagePosition, VerdictRecord
from stream.settings import Settings

FETCH_BYTES: Final = 64 << 10
"""Maximum fetch size; a larger record is fetched alone."""
POLL_MS: Final = 200


class PageGoneError(NeardupError):
    """The message of a page cannot be read any more. The text names the cause."""


async def page_message(settings: Settings, source: MessagePosition) -> bytes:
    """Read the message at a position of the pages topic. Raises PageGoneError."""
    key = TopicPartition(TopicNames(settings.namespace).pages, source.partition)
    where = f"{source.topic}, partition {source.partition}, offset {source.offset}"
    not_present = f"{where}: not a message of the present topic {key.topic}"
    consumer = clients.reader(settings, max_partition_fetch_bytes=FETCH_BYTES, fetch_max_wait_ms=100)
    async with broker_metadata.connect(settings) as client:
        present_id = await broker_metadata.topic_id(client, key.topic)
        if (source.topic, source.topic_id) != (key.topic, present_id):
            raise PageGoneError(not_present)
        bounds = (await broker_metadata.log_bounds(client, [key.topic])).get(key)
        if bounds is None or not bounds.start <= source.offset < bounds.stable:
            raise PageGoneError(f"{where}: retention has deleted the message")
        async with clients.open_client(settings, consumer):
            value = await _value_at(consumer, key, source.offset)
            # Fetches name topics, not their ids.
            topic_id = await broker_metadata.topic_id_at_leaders(client, consumer, key.topic, [key.partition])
    if topic_id != source.topic_id:
        raise PageGoneError(not_present)
    if value is None:
        raise PageGoneError(f"{where}: the message was deleted by compaction")
    return value


async def _value_at(consumer: AIOKafkaConsumer, key: TopicPartition, offset: int) -> bytes | None:
    """The value of the record at an offset, or None if the next record is another one or has no value."""
    consumer.assign([key])
    consumer.seek(key, offset)
    while await consumer.position(key) <= offset:
        for record in (await consumer.getmany(key, timeout_ms=POLL_MS, max_records=1)).get(key, []):
            if record.offset == offset and record.value is not None:
                return bytes(record.value)
    return None


async def compare_members(
    pool: ChildPool, one: tuple[bytes, VerdictRecord], other: tuple[bytes, VerdictRecord]
) -> Comparison:
    """Compare two pages of a cluster, each given as message and verdict, in a child process.

    The messages are not fingerprinted again, so the child needs no store and no registry. A page that is only
    a reference to a record of an archive, or that needs a schema, is not compared.
    """
    comparison = await compare_texts(pool, one[0], other[0])
    if comparison.shingles is None:
        return comparison
    prints = [each.fingerprint for _, each in (one, other)]
    if all(prints):
        first, second = (int(each or "", 16) for each in prints)
        comparison.distance = (first ^ second).bit_count()
    distance = "unknown distance" if comparison.distance is None else f"distance {comparison.distance} bits"
    shared, total = comparison.shingles.counts[0], sum(comparison.shingles.counts)
    comparison.why = f"{distance}; {shared} of {total} shingles are in both pages"
    return comparison


async def compare_texts(pool: ChildPool, one: bytes, other: bytes) -> Comparison:
    """Compare the shingles of two page messages, or say why that is not possible."""
    content = await pool.compare(one, other)
    if isinstance(content, Row):
        return Comparison(
            f"the pages could not be compared: {content.reason} ({content.detail or 'no detail'})"
        )
    comparison = Comparison("", shingles=(shingles := msgspec.msgpack.decode(content, type=ShingleDiff)))
    if union := sum(shingles.counts):
        comparison.exact_similarity = round(shingles.counts[0] / union, 4)
    return comparison

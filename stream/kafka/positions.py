"""Where a worker begins a partition it was assigned (rule 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.structs import OffsetAndMetadata

from stream.errors import RefusedError, TopicError
from stream.kafka.backlog import Backlog
from stream.kafka.cluster import Bounds, leader_topic_ids

ASK_SECONDS: Final = 3.0
"""A leader that does not answer for so long is looked up again: it may have moved."""
PAUSE_SECONDS: Final = 0.2

log = structlog.get_logger(__name__, role="worker")


def begin(backlog: Backlog, partition: int, committed: OffsetAndMetadata | None, bounds: Bounds) -> int:
    """Open the partition in the backlog; the offset to read from.

    Our commits carry the topic id as metadata. One of another topic id was made for an older topic of the
    same name and counts as none. One without metadata was made by an operator's tool, the cure of rule 7,
    and means the topic as it is now. Raises RefusedError for a commit above the log's end.
    """
    source = backlog.source
    where = {"topic": source.topic, "partition": partition, "log_start": bounds.start, "log_end": bounds.end}
    if committed is None or committed.metadata not in ("", source.topic_id):
        log.info("partition_opened", topic_id=source.topic_id, **where)
        backlog.open(partition, bounds.start, opening=True)
        return bounds.start
    if committed.offset > bounds.end:
        raise RefusedError(
            f"group offset {committed.offset} of topic {source.topic} partition {partition} is above its "
            f"log end {bounds.end}: the log lost records, or the offset was set by hand; reset it"
        )
    if committed.offset < bounds.start:
        lost = bounds.start - committed.offset
        log.warning("pages_lost_to_retention", committed=committed.offset, lost=lost, **where)
        backlog.open_after_loss(partition, committed.offset, bounds.start)
        return bounds.start
    start = int(committed.offset)
    backlog.open(partition, start)
    return start


async def topic_id_at_leaders(
    client: AIOKafkaClient, consumer: AIOKafkaConsumer, topic: str, partitions: Iterable[int]
) -> str:
    """The topic id as the leaders know it that serve these partitions to the consumer; waits for leaders.

    A broker learns of a new topic before it serves its records, so what a leader served *before* this answer
    came from the topic it names, or an older one. `client` should not be the consumer's own: an answer would
    queue behind long-polling fetches on its connection. Raises TopicError when the topic is gone, or half.
    """
    keys = [TopicPartition(topic, partition) for partition in partitions]
    while True:
        leaders = {consumer._client.cluster.leader_for_partition(key) for key in keys}
        if not leaders & {None, -1}:
            asking = (leader_topic_ids(client, {topic: leader}) for leader in leaders)
            try:
                async with asyncio.timeout(ASK_SECONDS):
                    ids = {answer[topic] for answer in await asyncio.gather(*asking)}
            except TimeoutError:
                log.warning("leaders_do_not_answer", topic=topic, leaders=sorted(leaders))
            else:
                if len(ids) == 1:
                    return ids.pop()
                raise TopicError(f"topic {topic} is being recreated: its leaders know it as {sorted(ids)}")
        await consumer._client.force_metadata_update()
        await asyncio.sleep(PAUSE_SECONDS)

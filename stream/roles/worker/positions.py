"""Determines where a worker starts to read an assigned partition (rule 4)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.structs import OffsetAndMetadata

from stream.errors import RefusedError, TopicError
from stream.kafka import broker_metadata
from stream.kafka.aiokafka_internals import as_if_polling, fetch_committed
from stream.kafka.broker_metadata import LogBounds, topic_id_at_leaders
from stream.kafka.decided_positions import expected_offsets
from stream.roles.worker.attempts import NONE, Positions, attempts_of, topic_id_of
from stream.roles.worker.backlog import Backlog, PagesTopic
from stream.settings import Settings

log = structlog.get_logger(__name__, role="worker")


def counts(committed: OffsetAndMetadata | None, source: PagesTopic) -> bool:
    """Return whether a committed offset of the group belongs to this source.

    Workers store the topic id in the metadata of their commits. A commit with another topic id belongs to an
    older topic of the same name and is ignored. A commit without metadata was made by an operator's tool, as
    the remedy of rule 7, and applies to the current topic.
    """
    return committed is not None and topic_id_of(committed.metadata) in ("", source.topic_id)


def begin(backlog: Backlog, partition: int, read: int | None, judged: int | None, bounds: LogBounds) -> int:
    """Open the partition in the backlog, and return the offset to read from.

    `read` is the group's committed offset, or None. `judged` is the offset that the judge expects next, which
    is looked up if the group has none, or None. Starting at the log start declares an opening: nothing
    earlier can arrive, and the judge may not know the partition yet or wait for deleted pages. Raises
    RefusedError for an offset above the log end.
    """
    source = backlog.source
    where = {"topic": source.topic, "partition": partition, "log_start": bounds.start, "log_end": bounds.end}
    offset = judged if read is None else read
    if offset is None:
        log.info("partition_opened", topic_id=source.topic_id, **where)
        backlog.open(partition, bounds.start, opening=True)
        return bounds.start
    if read is None:
        log.warning("group_offset_missing", judged=judged, topic_id=source.topic_id, **where)
    if offset > bounds.end:
        place = f"of topic {source.topic} partition {partition} is above its log end {bounds.end}"
        if read is None:
            raise RefusedError(
                f"offset {offset}, up to which pages were judged, {place}: the log lost records, and new "
                "pages with the same offsets would be dropped; recreate the topic"
            )
        raise RefusedError(
            f"group offset {offset} {place}: the log lost records, or the offset was set manually; reset it"
        )
    if offset < bounds.start:
        lost = bounds.start - offset
        log.warning("pages_lost_to_retention", committed=read, judged=judged, lost=lost, **where)
        backlog.open_after_loss(partition, offset, bounds.start)
        return bounds.start
    backlog.open(partition, offset, opening=offset == bounds.start)
    return offset


async def verify_topic(
    client: AIOKafkaClient, consumer: AIOKafkaConsumer, source: PagesTopic, partitions: Iterable[int]
) -> None:
    """Refuse pages that were fetched from a recreated topic: fetches name topics, not their ids.

    Raises TopicError. Clients as for `topic_id_at_leaders`.
    """
    topic_id = await topic_id_at_leaders(client, consumer, source.topic, partitions)
    if topic_id != source.topic_id:
        raise TopicError(
            f"topic {source.topic} was recreated while it was read: its id was {source.topic_id} and is "
            f"{topic_id}; a restart begins with the new topic"
        )


async def open_partitions(
    settings: Settings,
    client: AIOKafkaClient,
    consumer: AIOKafkaConsumer,
    topic: str,
    partitions: Collection[int],
) -> tuple[Backlog, Positions]:
    """Find where every assigned partition begins, and seek there (rule 4).

    aiokafka looks for positions by itself as soon as it has an assignment: it would fetch from a
    committed offset whose topic id nobody checked, and hand NoOffsetForPartitionError or
    OffsetOutOfRangeError to the next `getmany`. So nothing polls until this is done
    (`Rebalances.release` ended the reader before), and `seek` then makes it moot: it throws away
    records and errors fetched for the partition; answers to fetches still under way are thrown away
    for not being at the position (fetcher.py, `_proc_fetch_request`); and a position search still
    under way finds the position valid and stops (`_update_fetch_positions`).

    The topic id is asked for first: if the topic is recreated later on, offsets and pages may be the new
    topic's, but `verify_topic` will not let them into the journal under the old id.
    """
    keys = [TopicPartition(topic, partition) for partition in sorted(partitions)]
    if keys:
        topic_id = await topic_id_at_leaders(client, consumer, topic, partitions)
    else:
        topic_id = await broker_metadata.topic_id(client, topic)
    backlog, positions = (
        Backlog(PagesTopic(await broker_metadata.cluster_id(client), topic, topic_id)),
        Positions(),
    )
    committed = await fetch_committed(consumer, keys)
    ours = {key: committed[key] for key in keys if counts(committed.get(key), backlog.source)}
    read = {key: each.offset for key, each in ours.items()}
    sources = {key: (backlog.source.cluster_id, topic_id, key.partition) for key in keys if key not in read}
    with as_if_polling(consumer):
        judged = await expected_offsets(settings, client, sources.values())
    # Requested last: reading the decisions may take minutes, during which logs grow and retention deletes.
    bounds = await broker_metadata.log_bounds(client, [topic])
    if missing := [key.partition for key in keys if key not in bounds]:
        raise TopicError(f"topic {topic} has no partitions {missing} any more: it is being recreated")
    for key in keys:
        expected = judged.get(sources[key]) if key in sources else None
        start = begin(backlog, key.partition, read.get(key), expected, bounds[key])
        consumer.seek(key, start)
        attempts = attempts_of(ours[key].metadata) if key in ours else NONE
        if attempts != NONE:
            log.warning(
                "reading_carefully",
                topic=topic,
                partition=key.partition,
                attempts=attempts.count,
                page=attempts.page,
            )
        # Not `start` where pages before it were lost, until the journal declares that loss.
        candidates = [read.get(key), expected, start]
        position = next(each for each in candidates if each is not None)
        positions.take(key.partition, position, attempts)
    log.info("reading", topic=topic, topic_id=topic_id, partitions=sorted(partitions))
    return backlog, positions

"""How many published pages the workers have not read yet."""

from __future__ import annotations

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from stream.errors import TopicError
from stream.kafka import broker_metadata, clients
from stream.kafka.aiokafka_internals import client_of
from stream.kafka.names import TopicNames


async def live_lag(admin: AIOKafkaAdminClient, names: TopicNames) -> int | None:
    """Return the number of offsets of the pages topic beyond the workers' commits. A partition without a
    commit counts from its log start.

    Returns None while the group's coordinator moves, and while the topic is away, as when it is recreated.
    """
    try:
        committed = await admin.list_consumer_group_offsets(names.workers)
    except clients.DENIED:
        raise
    except KafkaError as error:
        if not error.retriable:
            raise
        return None
    try:
        bounds = await broker_metadata.log_bounds(client_of(admin), [names.pages])
    except TopicError:
        return None
    read: dict[TopicPartition, int] = {key: each.offset for key, each in committed.items()}  # -1 for none
    return sum(max(0, each.stable - max(each.start, read.get(key, -1))) for key, each in bounds.items())

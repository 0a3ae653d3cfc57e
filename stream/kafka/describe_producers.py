"""Kafka's DescribeProducers request in version 0, which names who has a transaction open (KIP-664).

aiokafka 0.14 does not have it. The classes follow its own, so that its client can send them.
"""

from __future__ import annotations

from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields

API_KEY: Final = 61
_TEXT = CompactString("utf-8")
_PRODUCER = (
    ("producer_id", Int64),
    ("producer_epoch", Int32),
    ("last_sequence", Int32),
    ("last_timestamp", Int64),
    ("coordinator_epoch", Int32),
    ("transaction_start", Int64),
    ("tags", TaggedFields),
)
_PARTITION = (
    ("partition", Int32),
    ("error_code", Int16),
    ("error_message", _TEXT),
    ("producers", CompactArray(*_PRODUCER)),
    ("tags", TaggedFields),
)


class DescribeProducersResponse0(Response):  # type: ignore[misc]
    """The response. Partitions are tuples in the order of `_PARTITION`, producers in that of `_PRODUCER`."""

    API_KEY = API_KEY
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(("topic", _TEXT), ("partitions", CompactArray(*_PARTITION)), ("tags", TaggedFields)),
        ),
        ("tags", TaggedFields),
    )


class DescribeProducersRequest0(RequestStruct):  # type: ignore[misc]
    """The request, to the leader of the partitions. It takes Read on the topic."""

    API_KEY = API_KEY
    API_VERSION = 0
    RESPONSE_TYPE = DescribeProducersResponse0
    FLEXIBLE_VERSION = True
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(("topic", _TEXT), ("partitions", CompactArray(Int32)), ("tags", TaggedFields)),
        ),
        ("tags", TaggedFields),
    )


class DescribeProducersRequest(Request[DescribeProducersRequest0]):  # type: ignore[misc]
    """Requests the producers of a partition."""

    API_KEY = API_KEY

    def __init__(self, key: TopicPartition) -> None:
        self._key = key

    def build(self, request_struct_class: type[DescribeProducersRequest0]) -> Any:
        """Build the request; called by aiokafka."""
        return request_struct_class([(self._key.topic, [self._key.partition], {})], {})


def transaction_at(answer: DescribeProducersResponse0, offset: int) -> int | None:
    """Return the id of the producer whose transaction is open since an offset; None if the answer names
    none."""
    for _, partitions, _ in answer.topics:
        for _, _, _, producers, _ in partitions:
            for producer, *_, start, _ in producers or ():
                if start == offset:
                    return int(producer)
    return None

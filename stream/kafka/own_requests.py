"""Requests to Kafka that aiokafka 0.14 lacks, made of its own classes, so that its client can send them."""

from __future__ import annotations

from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

_TEXT = CompactString("utf-8")
_TAGS = ("tags", TaggedFields)


def _kind(key: int, version: int, request: Schema, response: Schema) -> type[RequestStruct]:
    """A request in a version, by its schema and that of its response."""
    names = {"API_KEY": key, "API_VERSION": version}
    of_response = type("OwnResponse", (Response,), {**names, "SCHEMA": response})
    of_request = {"RESPONSE_TYPE": of_response, "FLEXIBLE_VERSION": True, "SCHEMA": request}
    return type("OwnRequest", (RequestStruct,), names | of_request)


_BROKER = (("node_id", Int32), ("host", _TEXT), ("port", Int32), ("rack", _TEXT), _TAGS)
_PARTITION = (
    ("error_code", Int16),
    ("partition", Int32),
    ("leader", Int32),
    ("leader_epoch", Int32),
    ("replicas", CompactArray(Int32)),
    ("isr", CompactArray(Int32)),
    ("offline_replicas", CompactArray(Int32)),
    _TAGS,
)
_TOPIC = (
    ("error_code", Int16),
    ("topic", _TEXT),
    # A UUID in two halves, because aiokafka has no 16-byte type.
    ("id_high", Int64),
    ("id_low", Int64),
    ("is_internal", Boolean),
    ("partitions", CompactArray(*_PARTITION)),
    ("authorized_operations", Int32),
    _TAGS,
)
METADATA: Final = _kind(
    3,
    12,  # the first one with topic ids by name (KIP-516); aiokafka supports up to 5
    Schema(
        ("topics", CompactArray(("id_high", Int64), ("id_low", Int64), ("topic", _TEXT), _TAGS)),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        _TAGS,
    ),
    Schema(
        ("throttle_time_ms", Int32),
        ("brokers", CompactArray(*_BROKER)),
        ("cluster_id", _TEXT),
        ("controller_id", Int32),
        ("topics", CompactArray(*_TOPIC)),
        _TAGS,
    ),
)
_PRODUCER = (
    ("producer_id", Int64),
    ("producer_epoch", Int32),
    ("last_sequence", Int32),
    ("last_timestamp", Int64),
    ("coordinator_epoch", Int32),
    ("transaction_start", Int64),
    _TAGS,
)
_PRODUCERS = (
    ("partition", Int32),
    ("error_code", Int16),
    ("error_message", _TEXT),
    ("producers", CompactArray(*_PRODUCER)),
    _TAGS,
)
PRODUCERS: Final = _kind(
    61,
    0,
    Schema(("topics", CompactArray(("topic", _TEXT), ("partitions", CompactArray(Int32)), _TAGS)), _TAGS),
    Schema(
        ("throttle_time_ms", Int32),
        ("topics", CompactArray(("topic", _TEXT), ("partitions", CompactArray(*_PRODUCERS)), _TAGS)),
        _TAGS,
    ),
)


class MetadataRequest(Request[METADATA]):  # type: ignore[misc]
    """Requests metadata of topics, without creating them."""

    API_KEY = METADATA.API_KEY

    def __init__(self, topics: list[str], *, operations: bool = False) -> None:
        """`operations` also requests the authorized operations of each topic (KIP-430)."""
        self._topics, self._operations = topics, operations

    def build(self, kind: type[RequestStruct]) -> Any:
        """Build the request; called by aiokafka."""
        return kind([(0, 0, topic, {}) for topic in self._topics], False, self._operations, {})


class DescribeProducersRequest(Request[PRODUCERS]):  # type: ignore[misc]
    """Asks the leader of a partition who has a transaction open (KIP-664). It takes Read on the topic."""

    API_KEY = PRODUCERS.API_KEY

    def __init__(self, key: TopicPartition) -> None:
        self._key = key

    def build(self, kind: type[RequestStruct]) -> Any:
        """Build the request; called by aiokafka."""
        return kind([(self._key.topic, [self._key.partition], {})], {})


def uuid_of(high: int, low: int) -> str:
    """Format a UUID, given as two signed halves, as 32 hex digits."""
    return f"{high % 2**64:016x}{low % 2**64:016x}"


def transaction_at(answer: Response, offset: int) -> int | None:
    """Return the id of the producer whose transaction is open since an offset; None if the answer names
    none."""
    for _, partitions, _ in answer.topics:
        for _, _, _, producers, _ in partitions:
            for producer, *_, start, _ in producers or ():
                if start == offset:
                    return int(producer)
    return None

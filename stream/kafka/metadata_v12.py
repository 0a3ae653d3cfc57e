"""Kafka's Metadata request in version 12, the first version with topic ids by name (KIP-516).

aiokafka 0.14 supports up to version 5. The classes follow its own, so that its client can send them.
"""

from __future__ import annotations

from typing import Any

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
_PARTITION = (
    ("error_code", Int16),
    ("partition", Int32),
    ("leader", Int32),
    ("leader_epoch", Int32),
    ("replicas", CompactArray(Int32)),
    ("isr", CompactArray(Int32)),
    ("offline_replicas", CompactArray(Int32)),
    ("tags", TaggedFields),
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
    ("tags", TaggedFields),
)
_BROKER = (("node_id", Int32), ("host", _TEXT), ("port", Int32), ("rack", _TEXT), ("tags", TaggedFields))


class MetadataResponse12(Response):  # type: ignore[misc]
    """The response. Topics are tuples in the order of `_TOPIC`."""

    API_KEY = 3
    API_VERSION = 12
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", CompactArray(*_BROKER)),
        ("cluster_id", _TEXT),
        ("controller_id", Int32),
        ("topics", CompactArray(*_TOPIC)),
        ("tags", TaggedFields),
    )


class MetadataRequest12(RequestStruct):  # type: ignore[misc]
    """The request for topics by name, in which topic ids are zero."""

    API_KEY = 3
    API_VERSION = 12
    RESPONSE_TYPE = MetadataResponse12
    FLEXIBLE_VERSION = True
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(("id_high", Int64), ("id_low", Int64), ("topic", _TEXT), ("tags", TaggedFields)),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class MetadataRequest(Request[MetadataRequest12]):  # type: ignore[misc]
    """Requests metadata of topics, without creating them."""

    API_KEY = 3

    def __init__(self, topics: list[str], *, operations: bool = False) -> None:
        """`operations` also requests the authorized operations of each topic (KIP-430)."""
        self._topics, self._operations = topics, operations

    def build(self, request_struct_class: type[MetadataRequest12]) -> Any:
        """Build the request; called by aiokafka."""
        return request_struct_class(
            [(0, 0, topic, {}) for topic in self._topics], False, self._operations, {}
        )


def topic_id(high: int, low: int) -> str:
    """Format a UUID, given as two signed halves, as 32 hex digits."""
    return f"{high % 2**64:016x}{low % 2**64:016x}"

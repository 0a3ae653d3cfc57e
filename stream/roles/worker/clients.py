"""The worker's consumer and producer, with the options for exactly-once processing and bounded memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from stream.kafka import clients
from stream.kafka.names import TopicNames
from stream.settings import Settings

HEARTBEAT_MS: Final = 1_000
"""Heartbeat interval, which bounds how soon a worker learns of a rebalance."""
JOIN_SECONDS: Final = 10.0
"""Time to rejoin the group after the handover, which `shutdown_seconds` bounds."""
METADATA_MS: Final = 60_000
"""Metadata refresh interval, which bounds how soon new partitions are found."""
FETCH_BYTES: Final = 16 << 20
LEAST_FETCH_BYTES: Final = 64 << 10
PARTITION_FETCH_BYTES: Final = 1 << 20
JOURNAL_BATCH_BYTES: Final = 512 << 10
"""Larger than any journal record, and smaller than any topic's `max.message.bytes`."""
REQUEST_BYTES: Final = 96 << 20
"""Larger than any dead letter, and below a broker's `socket.request.max.bytes` of 100 MiB."""


@asynccontextmanager
async def started_producer(settings: Settings) -> AsyncIterator[AIOKafkaProducer]:
    """Start an idempotent producer. Waits while brokers are unreachable; raises SecurityError."""
    producer = clients.producer(
        settings,
        enable_idempotence=True,
        acks="all",
        linger_ms=0,
        max_batch_size=JOURNAL_BATCH_BYTES,
        max_request_size=REQUEST_BYTES,
    )
    async with clients.started(settings, producer, patiently=True):
        yield producer


@asynccontextmanager
async def started_consumer(settings: Settings) -> AsyncIterator[AIOKafkaConsumer]:
    """Start a consumer in the group of workers, without a subscription. Waits and raises as
    `started_producer`."""
    fetch = max(LEAST_FETCH_BYTES, min(FETCH_BYTES, settings.worker_memory // 8))
    consumer = clients.consumer(
        settings,
        group_id=TopicNames(settings.namespace).workers,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed",
        # Rebalances are eager, i.e. all partitions are revoked, so a sticky assignor has no advantage.
        partition_assignment_strategy=(RoundRobinPartitionAssignor,),
        session_timeout_ms=int(settings.session_seconds * 1000),
        heartbeat_interval_ms=min(HEARTBEAT_MS, int(settings.session_seconds * 1000) // 4),
        rebalance_timeout_ms=int((settings.shutdown_seconds + JOIN_SECONDS) * 1000),
        metadata_max_age_ms=METADATA_MS,
        fetch_max_bytes=fetch,
        max_partition_fetch_bytes=min(fetch, PARTITION_FETCH_BYTES),
    )
    async with clients.started(settings, consumer, patiently=True):
        yield consumer

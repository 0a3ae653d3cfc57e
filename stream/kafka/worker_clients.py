"""The worker's consumer and producer: every option that exactly-once or bounded memory depends on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from stream.kafka import clients
from stream.kafka.names import Names
from stream.settings import Settings

HEARTBEAT_MS: Final = 1_000
"""Also how soon a worker hears of a rebalance."""
JOIN_SECONDS: Final = 10.0
"""Time to join the group again, after the handover that `shutdown_seconds` bounds."""
METADATA_MS: Final = 60_000
"""How soon new partitions are noticed."""
FETCH_BYTES: Final = 16 << 20
LEAST_FETCH_BYTES: Final = 64 << 10
PARTITION_FETCH_BYTES: Final = 1 << 20
BATCH_BYTES: Final = 512 << 10
"""Larger than a journal record, smaller than any topic's `max.message.bytes`."""
REQUEST_BYTES: Final = 96 << 20
"""Above the largest dead letter; below a broker's `socket.request.max.bytes`, 100 MiB."""


@asynccontextmanager
async def started_producer(settings: Settings) -> AsyncIterator[AIOKafkaProducer]:
    """An idempotent producer. Waits for a broker that answers; raises SecurityError."""
    producer = clients.producer(
        settings,
        enable_idempotence=True,
        acks="all",
        linger_ms=0,
        max_batch_size=BATCH_BYTES,
        max_request_size=REQUEST_BYTES,
    )
    async with clients.started(settings, producer, patiently=True):
        yield producer


@asynccontextmanager
async def started_consumer(settings: Settings) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer of the group `workers` that has not subscribed yet. Like `started_producer`."""
    fetch = max(LEAST_FETCH_BYTES, min(FETCH_BYTES, settings.worker_memory // 8))
    consumer = clients.consumer(
        settings,
        group_id=Names(settings.namespace).workers,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed",
        # Rebalances are eager: every partition is revoked anyway, so stickiness would gain nothing.
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

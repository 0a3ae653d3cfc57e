"""The worker's consumer, with the options for exactly-once processing and bounded memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiokafka import AIOKafkaConsumer
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


@asynccontextmanager
async def open_consumer(settings: Settings) -> AsyncIterator[AIOKafkaConsumer]:
    """Start a consumer in the group of workers, without a subscription. Waits while
    brokers are unreachable; raises SecurityError."""
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
    async with clients.open_client(settings, consumer, patiently=True):
        yield consumer

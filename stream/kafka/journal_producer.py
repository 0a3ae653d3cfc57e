"""The idempotent producer by which workers and loads append to the journal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiokafka import AIOKafkaProducer

from stream.kafka import clients
from stream.settings import Settings

JOURNAL_BATCH_BYTES: Final = 512 << 10
"""Larger than any journal record, and smaller than any topic's `max.message.bytes`."""
REQUEST_BYTES: Final = 96 << 20
"""Larger than any dead letter, and below a broker's `socket.request.max.bytes` of 100 MiB."""


@asynccontextmanager
async def open_journal_producer(settings: Settings) -> AsyncIterator[AIOKafkaProducer]:
    """Start an idempotent producer. Waits while brokers are unreachable; raises SecurityError."""
    producer = clients.producer(
        settings,
        enable_idempotence=True,
        acks="all",
        linger_ms=0,
        max_batch_size=JOURNAL_BATCH_BYTES,
        max_request_size=REQUEST_BYTES,
    )
    async with clients.open_client(settings, producer, patiently=True):
        yield producer

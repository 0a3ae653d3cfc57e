"""Judges page messages without a broker, in order, with the same core as a deployment."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Final

import structlog

from stream.children.memory import memory_limit, overcommitted
from stream.children.pool import ChildPool, configuration_of
from stream.fingerprint.row import Row
from stream.fingerprint.scheme import Scheme
from stream.index import Index
from stream.judge.judged_batch import JudgedBatch
from stream.messages.verdict_options import VerdictOptions
from stream.pages.outside.schema_registry import registry_of
from stream.settings import Settings
from stream.sources.feed import feed
from stream.sources.source import Message

CHUNK_PAGES: Final = 64
CHUNK_BYTES: Final = 1 << 20

log = structlog.get_logger(__name__)


async def scan(
    settings: Settings,
    messages: Iterable[Message],
    directory: Path,
    *,
    scheme: Scheme | None = None,
    options: VerdictOptions | None = None,
) -> AsyncGenerator[JudgedBatch, None]:
    """Judge `messages` as if they had come through a pages topic with one partition.

    Tables are stored in `directory`, which the caller removes. Yields the decided batches in order.
    """
    if wrong := overcommitted(settings, memory_limit(), "tables_memory"):
        log.warning("memory_overcommitted", error=wrong)
    with Index(
        directory,
        scheme=scheme,
        options=options,
        memory=settings.tables_memory,
        generation=settings.tables_generation,
        cache=settings.tables_cache,
    ) as index:
        async with aclosing(fingerprinted(settings, index.scheme, index.seed, messages)) as chunks:
            async for rows in chunks:
                yield index.judge(rows)


async def fingerprinted(
    settings: Settings, scheme: Scheme, seed: bytes, messages: Iterable[Message]
) -> AsyncGenerator[list[Row], None]:
    """Fingerprint the messages in child processes, and yield their rows in order.

    At most `2 * worker_processes + 1` chunks are in flight.
    """
    configuration = configuration_of(settings, scheme, seed)
    under_way: deque[asyncio.Task[list[Row]]] = deque()
    async with ChildPool(settings.worker_processes, configuration, registry_of(settings)) as pool:
        try:
            async with aclosing(_chunks(messages)) as chunks:
                async for chunk in chunks:
                    under_way.append(asyncio.create_task(pool.fingerprint(chunk)))
                    if len(under_way) > 2 * settings.worker_processes:
                        yield await under_way.popleft()
            while under_way:
                yield await under_way.popleft()
        finally:  # the consumer may have stopped early
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)


async def _chunks(messages: Iterable[Message]) -> AsyncGenerator[list[bytes | None], None]:
    chunk: list[bytes | None] = []
    size = 0
    async with aclosing(feed(messages)) as batches:
        async for batch in batches:
            for message in batch:
                chunk.append(message.value)
                size += len(message.value)
                if len(chunk) == CHUNK_PAGES or size >= CHUNK_BYTES:
                    yield chunk
                    chunk, size = [], 0
    if chunk:
        yield chunk

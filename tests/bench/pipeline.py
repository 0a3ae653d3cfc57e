"""A deployment of real processes for benchmarks: published to, and read from its verdicts."""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from stream.errors import NeardupError
from stream.fingerprint.scheme import Scheme
from stream.judge.options import VerdictOptions
from stream.kafka import topics
from stream.kafka.names import Names
from stream.settings import Settings, load
from stream.supervisor import Supervisor, deployment

PARTITIONS = 8
STOP_SECONDS = 20.0
PATIENCE = 60.0
"""Seconds without a verdict after which a run is given up."""


def settings_for(servers: str, directory: Path, **flags: Any) -> Settings:
    """Settings of a new namespace with small latency and real memory."""
    namespace = f"bench-{secrets.token_hex(4)}"
    return load(
        bootstrap_servers=servers, namespace=namespace, dev=True, partitions=PARTITIONS,
        state_dir=directory / namespace, **flags,
    )  # fmt: skip


@asynccontextmanager
async def ours(settings: Settings, workers: int) -> AsyncIterator[Settings]:
    """Workers and a judge as processes; their logs in the state directory."""
    await topics.create(settings, Scheme(), VerdictOptions(), lambda _: None)
    logs = settings.state_dir
    logs.mkdir(parents=True, exist_ok=True)
    async with Supervisor(deployment(settings, workers, logs), STOP_SECONDS):
        yield settings


@asynccontextmanager
async def faust_job(settings: Settings) -> AsyncIterator[Settings]:
    """The baseline as one process."""
    await topics.create(settings, Scheme(), VerdictOptions(), lambda _: None)
    directory = settings.state_dir
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "faust.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.bench.baselines.faust_job",
            settings.bootstrap_servers, settings.namespace, str(directory), "worker",
            stdout=log, stderr=log,
        )  # fmt: skip
        try:
            yield settings
        finally:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 10)
            except TimeoutError:
                process.kill()
                await process.wait()


@asynccontextmanager
async def producer(settings: Settings) -> AsyncIterator[AIOKafkaProducer]:
    """A crawler's producer."""
    made = AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap_servers, linger_ms=2, max_request_size=16 << 20
    )
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


@asynccontextmanager
async def verdicts(settings: Settings) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer of all verdicts, from the first on."""
    consumer = AIOKafkaConsumer(
        Names(settings.namespace).verdicts,
        bootstrap_servers=settings.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        fetch_max_wait_ms=20,
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def publish(settings: Settings, values: Sequence[bytes]) -> None:
    """Publish all pages, spread over the partitions."""
    async with producer(settings) as sender:
        for number, value in enumerate(values):
            await sender.send(Names(settings.namespace).pages, value, partition=number % PARTITIONS)
        await sender.flush()


async def through(
    settings: Settings, warm: Sequence[bytes], values: Sequence[bytes]
) -> tuple[float, Counter[str]]:
    """Pages a second from the first publish of `values` to their last verdict, and the verdicts' counts.

    `warm` goes first: processes start, dictionaries load.
    """
    counts: Counter[str] = Counter()
    async with verdicts(settings) as consumer:
        await publish(settings, warm)
        await _count(consumer, len(warm), Counter())
        started = time.perf_counter()
        publishing = asyncio.create_task(publish(settings, values))
        await _count(consumer, len(values), counts)
        await publishing
        return len(values) / (time.perf_counter() - started), counts


async def _count(consumer: AIOKafkaConsumer, wanted: int, counts: Counter[str]) -> None:
    heard = time.monotonic()
    while counts.total() < wanted:
        found = await consumer.getmany(timeout_ms=1000)
        if found:
            heard = time.monotonic()
        elif time.monotonic() - heard > PATIENCE:
            raise NeardupError(f"bench: {counts.total()} verdicts of {wanted}, then none for {PATIENCE} s")
        for records in found.values():
            for record in records:
                start = record.value.index(b'"verdict":') + 10
                counts[record.value[start : start + 14].split(b'"')[1].decode()] += 1

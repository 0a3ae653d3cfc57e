"""Pages -> journal through Kafka, against the same work in the same children without Kafka."""

from __future__ import annotations

import asyncio
import json
import secrets
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer

from stream.brokers.broker import start_broker
from stream.children.child import ChildConfiguration
from stream.children.pool import ChildPool
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.kafka import topics
from stream.kafka.names import TopicNames
from stream.messages.verdict_options import VerdictOptions
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings, load
from tests.bench.pages import bodies
from tests.bench.pipeline import TooFewPagesError, processor_seconds, with_enough

PROCESSES = 2
CHUNK = 32
ROUNDS = 3


def pages(count: int, data: Path | None) -> list[bytes]:
    """Page messages with these bodies, again and again."""
    found = bodies(data)
    return [
        json.dumps({"url": f"http://bench.example/{i}", "html": found[i % len(found)]}).encode()
        for i in range(count)
    ]


async def _alone(settings: Settings, values: list[bytes]) -> float:
    """Pages a second of the children fed from memory."""
    configuration = ChildConfiguration(
        scheme=Scheme(),
        seed=PUBLIC_SEED,
        page_bytes=settings.page_bytes,
        memory=settings.child_memory,
        deadline=settings.page_deadline,
    )
    async with ChildPool(PROCESSES, configuration) as pool:
        started = time.perf_counter()
        chunks = (list(values[i : i + CHUNK]) for i in range(0, len(values), CHUNK))
        await asyncio.gather(*(pool.fingerprint(list(chunk)) for chunk in chunks))
        return len(values) / (time.perf_counter() - started)


async def _through_kafka(settings: Settings, values: list[bytes]) -> tuple[float, int, dict[str, float]]:
    """Pages a second of a worker, from its first appended record to its last; most bytes held; microseconds
    of processor time a page, by who spent them."""
    await topics.create(settings, Scheme(), VerdictOptions(), lambda _: None, seed=PUBLIC_SEED)
    producer = AIOKafkaProducer(bootstrap_servers=settings.bootstrap_servers, linger_ms=5)
    await producer.start()
    try:
        for value in values:
            await producer.send(TopicNames(settings.namespace).pages, value)
        await producer.flush()
    finally:
        await producer.stop()
    worker = WorkerRole(settings)
    running = asyncio.create_task(worker.run())
    while not worker.stats.pages:
        await asyncio.sleep(0.005)
        if running.done():
            running.result()
    started, first, spent = time.perf_counter(), worker.stats.pages, processor_seconds()
    too_few = first > len(values) // 2
    while worker.stats.pages < len(values):
        await asyncio.sleep(0.02)
        if running.done():
            running.result()
    if too_few:
        worker.stop()
        await running
        raise TooFewPagesError(f"bench: {first} of {len(values)} pages were appended before the first look")
    count = len(values) - first
    rate = count / (time.perf_counter() - started)
    each = {who: (now - spent.get(who, 0.0)) / count * 1e6 for who, now in processor_seconds().items()}
    each["worker"] = each.pop("bench")  # which is in this process
    worker.stop()
    await running
    return rate, worker.stats.most_held_bytes, each


async def _run(servers: str, directory: Path, data: Path | None, count: int) -> dict[str, Any]:
    values = pages(count, data)
    alone, through, held = [], [], 0
    spent: list[dict[str, float]] = []
    for _ in range(ROUNDS):
        settings = load(
            bootstrap_servers=servers, namespace=f"bench-{secrets.token_hex(4)}", dev=True, partitions=8,
            worker_processes=PROCESSES, state_dir=directory,
        )  # fmt: skip
        alone.append(await _alone(settings, values))
        rate, most, each = await _through_kafka(settings, values)
        through.append(rate)
        spent.append(each)
        held = max(held, most)
    middle = ROUNDS // 2
    return {
        "pages": len(values),
        "megabytes": round(sum(map(len, values)) / 1e6, 1),
        "pages_per_second": round(sorted(through)[middle]),
        "without_kafka_per_second": round(sorted(alone)[middle]),
        "ratio": round(sorted(t / a for t, a in zip(through, alone, strict=True))[middle], 3),
        "processor_us_a_page": {who: round(sorted(each[who] for each in spent)[middle]) for who in spent[0]},
        "most_held_bytes": held,
        "bound_bytes": settings.worker_memory,
    }


def run(count: int = 3000, data: Path | None = None) -> dict[str, Any]:
    """`pages_per_second` end to end and the ratio to the same children without Kafka; medians of rounds."""
    with start_broker() as broker, tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory:
        return with_enough(partial(_run, broker.bootstrap_servers, Path(directory), data), count)

"""How long a page waits for its verdict, at shares of the load that this machine sustains, and where.

Text pages of 5 KB are published at a steady rate; latency is from `send` to the verdict's arrival at a reader
of committed records. The sustained rate is measured first, as fast as pages can be published. Then half of it
is published unmeasured: a broker compiles itself in its first minute, and takes up to half a core for it.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from aiokafka import AIOKafkaConsumer

from stream.brokers.broker import start_broker
from stream.kafka.names import TopicNames
from stream.settings import Settings
from tests.bench.bench_end_to_end import CHILDREN, WORKERS
from tests.bench.pages import AHEAD, texts
from tests.bench.pipeline import (
    PARTITIONS,
    ours,
    processor_seconds,
    producer,
    settings_for,
    steady,
    verdicts,
    with_enough,
)

WARM_SECONDS, SUSTAINED_SECONDS = 1.0, 3.0
SHARES = (0.05, 0.5, 0.9)
WARM_SHARE = 0.5
TICK = 0.005
SECONDS = 15.0
"""How long each share of the load lasts at most."""
PARTS = ("to_journal", "to_decision", "to_reader")
"""Parts of a page's way: worker and append; judge, until it publishes; the transaction, until it is read."""


async def _paced(settings: Settings, values: Sequence[bytes], rate: float, sent: dict[str, float]) -> None:
    """Publish at `rate` pages a second; notes when each URL was sent."""
    topic = TopicNames(settings.namespace).pages
    async with producer(settings) as sender:
        started = time.perf_counter()
        for number, value in enumerate(values):
            early = number / rate - (time.perf_counter() - started)
            if early > 0:
                await asyncio.sleep(max(early, TICK))
            sent[json.loads(value[:200].split(b", ")[0] + b"}")["url"]] = time.time()
            await sender.send(topic, value, partition=number % PARTITIONS)
        await sender.flush()


async def _latencies(
    settings: Settings, consumer: AIOKafkaConsumer, values: Sequence[bytes], rate: float
) -> dict[str, float]:
    sent: dict[str, float] = {}
    times: list[tuple[float, ...]] = []
    began, ours_before = time.monotonic(), sum(processor_seconds().values())
    publishing = asyncio.create_task(_paced(settings, values, rate, sent))
    while len(times) < len(values):
        for records in (await consumer.getmany(timeout_ms=50)).values():
            arrived = time.time()
            for record in records:
                verdict = json.loads(record.value)
                if verdict["url"] in sent:  # not those sent before
                    appended = datetime.fromisoformat(verdict["decided_at"]).timestamp()
                    times.append((sent[verdict["url"]], appended, record.timestamp / 1000, arrived))
    await publishing
    table = np.array(times) * 1000
    p50, p99 = np.percentile(table[:, -1] - table[:, 0], [50, 99])
    report = {"pages_per_second": round(rate), "p50_ms": round(float(p50), 1), "p99_ms": round(float(p99), 1)}
    took = time.monotonic() - began
    report["cores"] = round((sum(processor_seconds().values()) - ours_before) / took, 2)
    for part, waits in zip(PARTS, np.diff(table).T, strict=True):
        p50, p99 = np.percentile(waits, [50, 99])
        report |= {f"{part}_p50_ms": round(float(p50)), f"{part}_p99_ms": round(float(p99))}
    return report


async def _run(servers: str, directory: Path, count: int) -> dict[str, Any]:
    values, report = texts(count).values, dict[str, Any]()
    async with ours(settings_for(servers, directory, worker_processes=CHILDREN), WORKERS) as settings:
        found = await steady(settings, values, ahead=AHEAD, warm=WARM_SECONDS, seconds=SUSTAINED_SECONDS)
        sustained = found.pages_per_second
        report["sustained_pages_per_second"] = round(sustained)
        async with verdicts(settings) as consumer:
            for turn, share in enumerate((WARM_SHARE, *SHARES)):
                rate = sustained * share
                fresh = [v.replace(b"bench.example/", b"%d.example/" % turn) for v in values]
                figures = await _latencies(settings, consumer, fresh[: int(rate * SECONDS)], rate)
                if turn:
                    report[f"at_{share:.0%}"] = figures
    return report


def run(count: int = 20_000) -> dict[str, Any]:
    """`p50_ms` and `p99_ms` from publish to verdict, and of its parts, at shares of the sustained load;
    `cores` is what roles, broker and this process took meanwhile."""
    with start_broker() as broker, tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory:
        return with_enough(partial(_run, broker.bootstrap_servers, Path(directory)), count)

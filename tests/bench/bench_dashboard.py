"""Verdicts into the dashboard's tables: what its process spends, and how quickly it answers meanwhile.

Verdicts are published as a judge does, before the dashboard starts: 997 hosts, 30 % of the pages
near-duplicates of an earlier one. Its look-up has nothing to follow. Figures are of what comes after the
first tenth.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
from aiokafka import AIOKafkaProducer

from stream.brokers.broker import start_broker
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.kafka import topics
from stream.kafka.names import TopicNames
from stream.kafka.record_batches import header_block, record_batches
from stream.messages.byte_strings import StringColumn, Texts
from stream.messages.verdict import MessagePosition, PageRef, VerdictRecord
from stream.messages.verdict_options import VerdictOptions
from stream.pages.times import rfc3339
from stream.roles.judge.verdict_batches import VERDICT_BATCH_BYTES
from stream.settings import Settings
from tests.bench.bench_judge import TRANSACTION
from tests.bench.made_rows import NEAR
from tests.bench.pipeline import PARTITIONS, TooFewPagesError, settings_for, with_enough
from tests.kafka.dashboard_helpers import Client, dashboard_process

HOSTS = 997
JOURNAL = "abcd1234"
A_SECOND = 20_000
"""Verdicts that are decided in a second, by their times."""
WARM = 0.1
"""Share of the verdicts that is folded before the clock runs: processes start, code is compiled."""
ASK_SECONDS = 0.25
"""Between two questions whether it lives; what they take is the dashboard's too."""


def _verdicts(count: int) -> Iterator[VerdictRecord]:
    """Those of one partition after the other."""
    rng = random.Random(3)
    begun = int((time.time() - count / A_SECOND) * 1000)
    for number in range(count):
        like = number > 0 and rng.random() < NEAR
        other = rng.randrange(number) if like else 0
        url = f"https://host-{number % HOSTS}.example/articles/2026/{number}.html"
        original = f"https://host-{other % HOSTS}.example/articles/2026/{other}.html"
        yield VerdictRecord(
            id=f"{JOURNAL}.{1 + number // 512}.{number % 512}",
            url=url,
            verdict="duplicate" if like else "unique",
            change="new",
            cluster=f"{JOURNAL}.{1 + other // 512}.{other % 512}" if like else None,
            duplicate_of=PageRef(original, f"{JOURNAL}.{1 + other // 512}.{other % 512}") if like else None,
            distance=rng.randrange(4) if like else None,
            similarity=round(rng.uniform(0.8, 1), 4) if like else None,
            fingerprint=f"{rng.getrandbits(64):016x}",
            text_hash=f"{rng.getrandbits(128):032x}",
            scheme="0" * 16,
            source=MessagePosition("pages", "ab" * 16, number // 512 % PARTITIONS, number),
            fetched_at="2026-11-22T10:00:00.000Z",
            decided_at=rfc3339(begun + number // 512 * 512 * 1000 // A_SECOND),
            reason=None,
        )


async def _publish(settings: Settings, verdicts: list[VerdictRecord]) -> None:
    """In transactions and batches as large as a judge's."""
    topic = TopicNames(settings.namespace).verdicts
    producer = AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap_servers, transactional_id=f"{settings.namespace}.bench",
        enable_idempotence=True, acks="all", linger_ms=0, max_batch_size=VERDICT_BATCH_BYTES,
        max_request_size=VERDICT_BATCH_BYTES + (64 << 10),
    )  # fmt: skip
    headers = Texts.of([header_block([("verdict", b"unique"), ("scheme", b"0" * 16)])])
    await producer.start()
    try:
        for first in range(0, len(verdicts), TRANSACTION):
            await producer.begin_transaction()
            sent = []
            for partition in range(PARTITIONS):
                its = [
                    each
                    for each in verdicts[first : first + TRANSACTION]
                    if each.source.partition == partition
                ]
                values = Texts.of([msgspec.json.encode(each) for each in its])
                keys = StringColumn.of([(each.url or "").encode() for each in its])
                no_headers = np.zeros(len(its), np.int64)
                batches = record_batches(keys, values, headers, no_headers, VERDICT_BATCH_BYTES)
                sent += [await producer.send_batch(each, topic, partition=partition) for each in batches]
            await asyncio.gather(*sent)
            await producer.commit_transaction()
    finally:
        await producer.stop()


async def _answers(client: Client, took: list[float]) -> None:
    """Ask again and again whether it lives; milliseconds of each answer."""
    while True:
        begun = time.perf_counter()
        async with client.session.get(f"{client.url}/livez") as response:
            await response.read()
        took.append((time.perf_counter() - begun) * 1000)
        await asyncio.sleep(ASK_SECONDS)


def _spent(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def _run(servers: str, directory: Path, count: int) -> dict[str, Any]:
    settings = settings_for(servers, directory, dashboard_port=0)
    await topics.create(settings, Scheme(), VerdictOptions(), lambda _: None, seed=PUBLIC_SEED)
    await _publish(settings, list(_verdicts(count)))
    took: list[float] = []
    async with dashboard_process(settings, directory / "dashboard.log") as (started, client):
        process = psutil.Process(started.pid)
        first = (await client.counted(max(1, int(count * WARM))))["pages"]
        spent, begun = _spent(process), time.perf_counter()
        asking = asyncio.create_task(_answers(client, took))
        folded = (await client.counted(count))["pages"] - first
        seconds, processor = time.perf_counter() - begun, _spent(process) - spent
        asking.cancel()
        rss = process.memory_info().rss >> 20
    if folded <= 0 or not took or not processor:  # which the kernel counts in hundredths of a second
        raise TooFewPagesError(f"bench: all but {WARM:.0%} of {count} verdicts are too few to measure")
    return {
        "verdicts": folded,
        "folded_per_second": round(folded / processor),
        "processor_us_a_verdict": round(processor / folded * 1e6, 1),
        "cores": round(processor / seconds, 2),
        "livez_p50_ms": round(float(np.percentile(took, 50)), 1),
        "livez_p99_ms": round(float(np.percentile(took, 99)), 1),
        "rss_mib": rss,
    }


def run(count: int = 200_000) -> dict[str, Any]:
    """`folded_per_second` is of one core: by the processor seconds of the dashboard, all its threads."""
    with start_broker() as broker, tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory:
        return with_enough(partial(_run, broker.bootstrap_servers, Path(directory)), count)

"""Journal -> verdicts through Kafka, with publishing alone beside it.

A journal of random fingerprints, 30 % of them near-duplicates of earlier rows, is written first; the judge
then works through it. Its speed is taken over the last rows, when the tables hold `anchors` anchors.
"""

from __future__ import annotations

import asyncio
import resource
import secrets
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer

from stream.brokers.broker import start_broker
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.judge.rule import Rule
from stream.kafka import topics
from stream.kafka.names import TopicNames
from stream.messages.verdict_options import VerdictOptions
from stream.roles.judge.role import JudgeRole
from stream.roles.judge.stats import JudgeStats
from stream.roles.judge.verdict_batches import VERDICT_BATCH_BYTES
from stream.settings import Settings, load
from tests.bench.made_rows import NEAR, PARTITIONS, journal
from tests.bench.pipeline import processor_seconds

TRANSACTION = 32_768


async def _write_journal(settings: Settings, rows: int, scheme: Scheme) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap_servers, enable_idempotence=True, acks="all",
        max_batch_size=1 << 20, max_request_size=2 << 20,
    )  # fmt: skip
    await producer.start()
    try:
        for record in journal(rows, scheme):
            await producer.send(TopicNames(settings.namespace).journal, record.encode(), partition=0)
        await producer.flush()
    finally:
        await producer.stop()


@dataclass(slots=True)
class _Window:
    """Of the judge, from the moment its tables held as many anchors as was asked."""

    stats: JudgeStats
    rows: int
    rows_per_second: float
    processor_us_a_row: dict[str, float]
    """Of this process, which is the judge's, and of the broker."""
    cores: float
    """That they took."""


async def _judge(settings: Settings, rows: int, anchors: int) -> _Window:
    role = JudgeRole(settings)
    running = asyncio.create_task(role.run())
    begun, before, spent = 0.0, 0, processor_seconds()
    while (judged := role.stats.verdicts.total()) < rows:
        await asyncio.sleep(0.02)
        if running.done():
            running.result()
        if not begun and role.stats.verdicts["unique"] >= anchors:
            begun, before, spent = time.perf_counter(), judged, processor_seconds()
    seconds, measured = time.perf_counter() - begun, judged - before
    took = {who: now - spent.get(who, 0.0) for who, now in processor_seconds().items()}
    role.stop()
    await running
    return _Window(
        stats=role.stats,
        rows=measured,
        rows_per_second=measured / seconds,
        processor_us_a_row={
            name: round(took[who] / measured * 1e6, 1)
            for name, who in (("judge", "bench"), ("broker", "broker"))
            if who in took  # a broker may be another's
        },
        cores=round(sum(took.values()) / seconds, 2),
    )


async def _publish_alone(settings: Settings, rows: int) -> float:
    """Verdict-sized records a second by aiokafka's `send_batch`, in transactions as large as the judge's."""
    producer = AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap_servers, transactional_id=f"{settings.namespace}.alone",
        enable_idempotence=True, acks="all", linger_ms=0, max_batch_size=VERDICT_BATCH_BYTES,
        max_request_size=VERDICT_BATCH_BYTES + (64 << 10),
    )  # fmt: skip
    topic = TopicNames(settings.namespace).verdicts
    value, key = b"v" * 640, b"k" * 50
    headers = [("verdict", b"unique"), ("scheme", b"0" * 16)]
    await producer.start()
    try:
        started = time.perf_counter()
        for _ in range(0, rows, TRANSACTION):
            await producer.begin_transaction()
            sent = []
            for partition in range(PARTITIONS):
                batch = producer.create_batch()
                for _ in range(TRANSACTION // PARTITIONS):
                    if batch.append(timestamp=None, key=key, value=value, headers=headers) is None:  # full
                        sent.append(await producer.send_batch(batch, topic, partition=partition))
                        batch = producer.create_batch()
                        batch.append(timestamp=None, key=key, value=value, headers=headers)
                sent.append(await producer.send_batch(batch, topic, partition=partition))
            await asyncio.gather(*sent)
            await producer.commit_transaction()
        return rows / (time.perf_counter() - started)
    finally:
        await producer.stop()


async def _run(servers: str, directory: Path, anchors: int, measured: int) -> dict[str, Any]:
    scheme = Scheme()
    settings = load(
        bootstrap_servers=servers, namespace=f"bench-{secrets.token_hex(4)}", dev=True, partitions=PARTITIONS,
        state_dir=directory, tables_memory=4 << 30,
    )  # fmt: skip
    await topics.create(settings, scheme, VerdictOptions(), lambda _: None, seed=PUBLIC_SEED)
    rows = int(anchors / (1 - NEAR) * 1.02) + measured
    await _write_journal(settings, rows, scheme)
    alone = await _publish_alone(settings, measured)
    window = await _judge(settings, rows, anchors)
    alone = (alone + await _publish_alone(settings, measured)) / 2
    return {
        "anchors": window.stats.verdicts["unique"],
        "rows_measured": window.rows,
        "duplicates": window.stats.verdicts["duplicate"],
        "tables": Rule(VerdictOptions(), scheme).design().tables,
        "verdicts_per_second": round(window.rows_per_second),
        "publishing_alone_per_second": round(alone),
        "ratio": round(window.rows_per_second / alone, 3),
        "processor_us_a_verdict": window.processor_us_a_row,
        "cores": window.cores,
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }


def run(anchors: int = 1_000_000, measured: int = 400_000) -> dict[str, Any]:
    """`verdicts_per_second` of one process from so many anchors on, in RAM, while a generation freezes."""
    with start_broker() as broker, tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory:
        return asyncio.run(_run(broker.bootstrap_servers, Path(directory), anchors, measured))

"""Journal -> verdicts through Kafka, with publishing alone beside it.

    python -m tests.bench.bench_judge [anchors] [measured rows]

A journal of random fingerprints, 30 % of them near-duplicates of earlier rows, is written first; the judge
then works through it. Its speed is taken over the last rows, when the tables hold `anchors` anchors.
"""

from __future__ import annotations

import asyncio
import json
import resource
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from aiokafka import AIOKafkaProducer

from stream.brokers.broker import start_broker
from stream.fingerprint.scheme import Scheme
from stream.judge.options import VerdictOptions
from stream.kafka import topics
from stream.kafka.judge import JudgeRole
from stream.kafka.names import Names
from stream.kafka.publisher import BATCH_BYTES
from stream.messages.journal import Rows, SourceRange
from stream.settings import Settings, load

ROWS = 512
NEAR = 0.3
PARTITIONS = 8
TRANSACTION = 16_384


def journal(rows: int, scheme: Scheme) -> Iterator[Rows]:
    """Records of ROWS rows each, from one source partition after the other."""
    rng = np.random.default_rng(20)
    words = scheme.sketch_bytes // 8
    prints = rng.integers(0, 1 << 64, rows, dtype=np.uint64)
    sketches = np.empty((rows, words), np.uint64)
    ends = [0] * PARTITIONS
    for number, first in enumerate(range(0, rows, ROWS)):
        n = min(ROWS, rows - first)
        sketches[first : first + n] = rng.integers(0, 1 << 64, (n, words), dtype=np.uint64)
        sketches[first : first + n, -1] = 1000  # shingles
        uncertain = np.argsort(rng.random((n, 64)), axis=1)[:, :32].astype(np.uint8)
        near = np.flatnonzero(rng.random(n) < NEAR) if first else np.zeros(0, np.int64)
        base = rng.integers(0, max(first, 1), len(near))
        # Flip up to three of the least certain bits, and four bits of the sketch.
        flips = np.left_shift(np.uint64(1), uncertain[near, :3].astype(np.uint64))
        flips[np.arange(3) >= rng.integers(0, 4, len(near))[:, None]] = 0
        prints[first + near] = prints[base] ^ np.bitwise_or.reduce(flips, axis=1)
        sketches[first + near] = sketches[base]
        sketches[first + near, 0] ^= np.uint64(0x1001001001)
        partition = number % PARTITIONS
        start, ends[partition] = ends[partition], ends[partition] + n
        urls = [f"https://host-{i % 997}.example/articles/2026/{i}.html" for i in range(first, first + n)]
        yield Rows(
            scheme=scheme.id,
            ranges=[SourceRange("c", "pages", "0" * 32, partition, start, start + n, n, opening=start == 0)],
            status=np.zeros(n, np.uint8),
            fingerprint=prints[first : first + n],
            uncertain=uncertain,
            sketch=sketches[first : first + n],
            text_hash=rng.integers(0, 256, (n, 16), dtype=np.uint8),
            offset=np.arange(start, start + n),
            fetched_at=np.full(n, 1_790_000_000_000),
            url=list(urls),
            url_key=list(urls),
            key=[url.encode() for url in urls],
            reason=[None] * n,
        )


async def _write_journal(settings: Settings, rows: int, scheme: Scheme) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap_servers, enable_idempotence=True, acks="all",
        max_batch_size=1 << 20, max_request_size=2 << 20,
    )  # fmt: skip
    await producer.start()
    try:
        for record in journal(rows, scheme):
            await producer.send(Names(settings.namespace).journal, record.encode(), partition=0)
        await producer.flush()
    finally:
        await producer.stop()


async def _judge(settings: Settings, rows: int, anchors: int) -> tuple[float, int, Any]:
    """Rows a second from the moment the tables hold `anchors`, how many rows that were, and the stats."""
    role = JudgeRole(settings)
    running = asyncio.create_task(role.run())
    begun, before = 0.0, 0
    while (judged := role.stats.verdicts.total()) < rows:
        await asyncio.sleep(0.02)
        if running.done():
            running.result()
        if not begun and role.stats.verdicts["unique"] >= anchors:
            begun, before = time.perf_counter(), judged
    seconds = time.perf_counter() - begun
    role.stop()
    await running
    return (judged - before) / seconds, judged - before, role.stats


async def _publish_alone(settings: Settings, rows: int) -> float:
    """Verdict-sized records a second, in transactions as large as the judge's."""
    producer = AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap_servers, transactional_id=f"{settings.namespace}.alone",
        enable_idempotence=True, acks="all", linger_ms=0, max_batch_size=BATCH_BYTES,
        max_request_size=BATCH_BYTES + (64 << 10),
    )  # fmt: skip
    topic = Names(settings.namespace).verdicts
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
    await topics.create(settings, scheme, VerdictOptions(), lambda _: None)
    rows = int(anchors / (1 - NEAR) * 1.02) + measured
    await _write_journal(settings, rows, scheme)
    alone = await _publish_alone(settings, measured)
    rate, counted, stats = await _judge(settings, rows, anchors)
    alone = (alone + await _publish_alone(settings, measured)) / 2
    return {
        "anchors": stats.verdicts["unique"],
        "rows_measured": counted,
        "duplicates": stats.verdicts["duplicate"],
        "tables": 10,
        "probes_a_page": 260,
        "verdicts_per_second": round(rate),
        "publishing_alone_per_second": round(alone),
        "ratio": round(rate / alone, 3),
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }


def run(anchors: int = 1_000_000, measured: int = 200_000) -> dict[str, Any]:
    """`verdicts_per_second` in one process at so many anchors in the hot tier, default probes."""
    with start_broker() as broker, tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory:
        return asyncio.run(_run(broker.bootstrap_servers, Path(directory), anchors, measured))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(*map(int, sys.argv[1:])), indent=2) + "\n")

"""Helpers for tests of the dashboard: synthetic verdicts, committed and aborted, and their independent
count."""

from __future__ import annotations

# ruff: noqa: ASYNC240 (a log file of ours, on the local disk)
import asyncio
import io
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiokafka import AIOKafkaProducer

from stream.kafka.names import TopicNames
from stream.messages.verdict import ClusterRecord, MessagePosition, PageRef, VerdictRecord
from stream.pages.times import rfc3339
from stream.settings import Settings
from tests.kafka.judge_helpers import append
from tests.waiting import HANG_SECONDS, until, until_answer

KINDS = ("unique", "duplicate", "recrawl", "insufficient", "rejected")
JOURNAL = "abcd1234"


class VerdictMaker:
    """Makes verdicts that could be a judge's. Seeded."""

    def __init__(self, seed: int = 1, at: float | None = None) -> None:
        self._random, self.made = random.Random(seed), 0
        self.at = time.time() - 60 if at is None else at

    def one(self, kind: str | None = None, **fields: Any) -> VerdictRecord:
        rng = self._random
        self.made += 1
        self.at = min(self.at + rng.random() / 20, time.time())
        kind = kind or rng.choices(KINDS, (50, 30, 12, 5, 3))[0]
        like = kind in ("duplicate", "recrawl")
        anchor = min(int(rng.expovariate(0.15)), 60)
        url = f"https://site-{min(int(rng.expovariate(0.3)), 30)}.example/page/{self.made}"
        original = PageRef(f"https://original.example/{anchor}", f"{JOURNAL}.1.{anchor}")
        known = {
            "id": f"{JOURNAL}.7.{self.made}",
            "url": url,
            "verdict": kind,
            "change": None if kind in ("insufficient", "rejected") else "new",
            "cluster": f"{JOURNAL}.1.{anchor}" if like else None,
            "duplicate_of": original if like else None,
            "distance": rng.choice([0, 0, 0, 1, 2, 3, 5, 8, 11]) if like else None,
            "similarity": round(1 - rng.random() ** 3 / 5, 4) if like else None,
            "fingerprint": None,
            "text_hash": None,
            "scheme": "0" * 16,
            "source": MessagePosition("pages", "ab" * 16, self.made % 3, self.made),
            "fetched_at": None,
            "decided_at": rfc3339(int(self.at * 1000)),
            "reason": rng.choice(["malformed_json", "too_large", "crash"]) if kind == "rejected" else None,
        }
        return VerdictRecord(**{**known, **fields})

    def some(self, count: int) -> list[VerdictRecord]:
        return [self.one() for _ in range(count)]


async def decide(settings: Settings, verdicts: Sequence[VerdictRecord], *, commit: bool = True) -> None:
    """Publish verdicts in one transaction, as a judge does, or abort it."""
    async with AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap_servers,
        transactional_id=f"{settings.namespace}.test-judge",
        linger_ms=5,
    ) as producer:
        await producer.begin_transaction()
        topic = TopicNames(settings.namespace).verdicts
        sent = [
            await producer.send(topic, msgspec.json.encode(each), partition=each.source.partition)
            for each in verdicts
        ]
        await asyncio.gather(*sent)
        await (producer.commit_transaction() if commit else producer.abort_transaction())


async def supersede(settings: Settings, cluster: str, *, ended: bool = False) -> None:
    """Publish that a cluster's anchor was superseded, as a judge does; or, `ended`, that it has expired."""
    record = ClusterRecord(
        cluster=cluster, url="https://a/", state="superseded", by=f"{JOURNAL}.8.1", decided_at=rfc3339(0)
    )
    value, topic = None if ended else msgspec.json.encode(record), TopicNames(settings.namespace).clusters
    await append(settings, value, topic=topic, key=cluster.encode())


def by_kind(verdicts: Sequence[VerdictRecord]) -> dict[str, int]:
    found = Counter(each.verdict for each in verdicts)
    return {kind: found[kind] for kind in KINDS}


class Client:
    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url, self.session = url.rstrip("/"), session

    async def get(self, path: str, status: int = 200, **query: Any) -> Any:
        async with self.session.get(self.url + path, params=query) as response:
            body = await response.read()
            assert response.status == status, body
            return json.loads(body)

    async def post(self, path: str, body: Any, status: int = 200) -> Any:
        async with self._posted(path, body) as response:
            text = await response.read()
            assert response.status == status, text
            return json.loads(text)

    def _posted(self, path: str, body: Any) -> Any:
        content = io.BytesIO(json.dumps(body).encode())
        return self.session.post(self.url + path, data=content, headers={"Content-Type": "application/json"})

    async def counted(self, pages: int) -> dict[str, Any]:
        """Wait until the figures of all time count `pages` pages, and return them."""
        return await self.until("/api/v1/figures", lambda found: found["pages"] >= pages, range="all")

    async def until(self, path: str, holds: Callable[[Any], object], **query: Any) -> Any:
        """Get until the answer holds, and return it."""
        return await until_answer(lambda: self.get(path, **query), holds)


@asynccontextmanager
async def dashboard_process(settings: Settings, log: Path) -> AsyncIterator[tuple[Any, Client]]:
    """Context manager that runs a dashboard in a process of its own, and kills it at the end."""
    settings = settings.model_copy(update={"dashboard_open": True, "dashboard_lookups": 1_000_000})
    log.touch()
    before = len(log.read_bytes())
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "stream.cli", "dashboard",
            env=os.environ | settings.environment(), stderr=output, stdin=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
    url = ""

    def served() -> bool:
        nonlocal url
        assert process.returncode is None, log.read_text()
        for line in log.read_bytes()[before:].splitlines():
            if line.startswith(b"{") and line.endswith(b"}") and json.loads(line)["event"] == "serving":
                url = json.loads(line)["url"]
        return bool(url)

    try:
        await until(served)
        async with aiohttp.ClientSession() as session:
            yield process, Client(url, session)
    except aiohttp.ClientConnectorError as error:
        error.add_note(log.read_text())
        raise
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def dashboard(settings: Settings) -> AsyncIterator[Client]:
    """Context manager that runs a dashboard, and stops it at the end. It must stop soon and without
    errors."""
    async with dashboard_process(settings, settings.state_dir.parent / "dashboard.log") as (process, client):
        yield client
        process.terminate()
        async with asyncio.timeout(HANG_SECONDS):
            assert await process.wait() == 0

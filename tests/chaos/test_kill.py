"""The main promise: processes are killed at every bad moment, and every page has its one right verdict."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from stream.messages.verdict_options import VerdictOptions
from stream.roles.auditor.audit import audit
from stream.settings import Settings
from tests.chaos.deployment import Crawler, Deployment
from tests.chaos.witness import bear_witness
from tests.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.chaos, pytest.mark.timeout(3600)]

JUDGE_POINTS = (
    "judge.sent", "judge.committed", "judge.ledger_sent", "judge.ledger_committed", "judge.ledger_applied",
    "turn.decided", "turn.sent", "turn.committed", "turn.applied", "flush", "freeze.build", "freeze.ingest",
    "freeze.meta",
)  # fmt: skip
WORKER_POINTS = ("worker.before_append", "worker.append")
BY_DAY = ("judge.committed", "worker.append")
"""Families that no other test reaches in a whole deployment by day; those of tables and turns have others."""
LIFETIME = VerdictOptions(lifetime=3600)
"""Longer than the test, so that turns come and no page expires."""


@pytest.mark.parametrize(
    ("points", "times"), [(BY_DAY, 1), pytest.param(JUDGE_POINTS + WORKER_POINTS, 3, marks=pytest.mark.night)]
)
async def test_kills_at_every_point_lose_nothing_and_repeat_nothing(
    settings: Settings, tmp_path: Path, report, points: tuple[str, ...], times: int
) -> None:
    rng = random.Random(20070508)
    chaos = settings.model_copy(
        update={
            "tables_generation": 48, "tables_memory": 0, "flush_seconds": 0.3, "session_seconds": 2.0,
            "shutdown_seconds": 3.0, "partitions": 4, "checkpoint_interval": 1.0,
        }
    )  # fmt: skip
    kills: Counter[str] = Counter()
    crawler, done = Crawler(1), asyncio.Event()

    async def judges(deployment: Deployment) -> None:
        order = [each for each in points if each not in WORKER_POINTS] * times
        rng.shuffle(order)
        for point in order:
            turn = rng.choice([1, 1, 2])
            await deployment.start("judge", f"{point}:{turn}")
            assert await deployment.wait_for_end("judge") == -9, deployment.log("judge")[-2000:]
            kills[point] += 1
            if rng.random() < 0.4:
                await deployment.start("judge")
                await asyncio.sleep(rng.uniform(0.5, 4))
                await deployment.kill("judge")
                kills["judge, any moment"] += 1

    async def workers(deployment: Deployment) -> None:
        await deployment.start("worker-steady")
        order = [each for each in points if each in WORKER_POINTS] * times
        rng.shuffle(order)
        for i, point in enumerate(order):
            await deployment.start("worker-dying", f"{point}:{rng.choice([1, 2])}")
            assert await deployment.wait_for_end("worker-dying") == -9, deployment.log("worker-dying")[-2000:]
            kills[point] += 1
            name = f"worker-{i}"
            await deployment.start(name)
            await asyncio.sleep(rng.uniform(1, 5))
            if rng.random() < 0.5:
                await deployment.kill(name)
                kills["worker, any moment"] += 1
            else:
                # On a busy machine SIGTERM may come before the worker handles it.
                assert await deployment.stop(name) in (0, -signal.SIGTERM), deployment.log(name)[-2000:]

    async with Deployment(chaos, tmp_path, LIFETIME) as deployment:
        crawling = asyncio.create_task(crawler.crawl(chaos, done, 0.1, fast=500))
        await asyncio.gather(judges(deployment), workers(deployment))
        done.set()
        await crawling
        await deployment.start("judge")

        async def judged() -> bool:
            findings = await audit(chaos)
            return not (findings.missing or findings.waiting)

        await until(judged)
        await deployment.stop("judge")
        await deployment.stop("worker-steady")
    said = await bear_witness(chaos)
    report(f"kills per point {dict(sorted(kills.items()))}; {said}")
    assert not said.missing
    assert not said.repeated
    assert not said.different, said.different[:3]
    assert said.pages == crawler.published >= 500
    assert all(kills[point] >= times for point in points)
    assert all(said.verdicts[v] for v in ("unique", "duplicate", "recrawl", "insufficient", "rejected"))

"""Logs are trimmed while roles are killed and lose directories, and every page has its one right verdict.

Some thousand pages, trimmed each second. A million, trimmed each minute:

    make test ARGS='tests/chaos/test_trimming.py --trimmed-pages 1000000 --trim-every 60'
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.kinds import JUDGE
from stream.checkpoints.manifest import Manifest
from stream.errors import EXIT_REFUSED
from stream.kafka import broker_metadata
from stream.kafka.names import TopicNames
from stream.roles.auditor.audit import audit
from stream.roles.auditor.recompute import recompute
from stream.settings import Settings
from tests.chaos.deployment import Crawler, Deployment
from tests.commands import neardup_process
from tests.kafka.worker_helpers import admin_of
from tests.waiting import HANG_SECONDS, until

pytestmark = [pytest.mark.broker, pytest.mark.chaos, pytest.mark.timeout(3600), pytest.mark.night]

JUDGE_POINTS = ("flush", "checkpoint.linked", "checkpoint.manifest", "checkpoint.file")
"""Places to which one that stands by comes as well."""
TRIM_POINTS = ("trim.decisions", "trim.journal", "restore.file")


@pytest.fixture
def pages(request: pytest.FixtureRequest) -> int:
    """Pages to publish as fast as that goes; then, or without any, a few at a time while roles are killed."""
    return int(request.config.getoption("--trimmed-pages"))


@pytest.fixture
def every(request: pytest.FixtureRequest) -> int:
    """Seconds from a trim to the next one."""
    return int(request.config.getoption("--trim-every"))


@pytest.fixture
def chaos(settings: Settings, tmp_path: Path, pages: int, every: int) -> Settings:
    return settings.model_copy(
        update={
            "tables_generation": max(48, pages // 100), "tables_memory": 0, "flush_seconds": 0.3,
            "session_seconds": 2.0, "shutdown_seconds": 3.0, "checkpoints": str(tmp_path / "objects"),
            "checkpoint_interval": float(every), "checkpoints_kept": 2, "rebuild_damaged": True,
        }
    )  # fmt: skip


async def test_trimming_under_kills_loses_nothing_and_repeats_nothing(
    chaos: Settings, tmp_path: Path, pages: int, every: int, report: Callable[[str], None]
) -> None:
    trim = ("--every", f"{every}s", "--keep", f"{max(3, every)}s")
    rng, kills, restored = random.Random(20070508), Counter[str](), Counter[str]()
    crawler, done = Crawler(1), asyncio.Event()

    async def trimmer(deployment: Deployment) -> None:
        """Trims until pages end, and dies at each place."""
        points = list(TRIM_POINTS) * 2
        rng.shuffle(points)
        for number, point in enumerate(cycle(points)):
            if number >= len(points) and await has_judged(chaos, pages):
                break
            await deployment.start("trim", point, trim)
            # A judge that is killed before it has uploaded its next checkpoint holds the logs meanwhile.
            ended = await deployment.wait_for_end("trim", HANG_SECONDS + 20 * every)
            assert ended == -9, deployment.log("trim")[-2000:]
            kills[point] += 1
        await deployment.start("trim", None, trim)

    async def judges(deployment: Deployment) -> None:
        """Two judges, of which one is killed, dies at its start, and may lose its directory, while the other
        goes on."""
        directories = {name: tmp_path / name for name in ("judge-1", "judge-2")}
        for name, directory in directories.items():
            await deployment.start(name, state_dir=directory)
        await until(partial(has_trimmed, chaos))
        for number, point in enumerate(cycle(JUDGE_POINTS)):
            if number >= len(JUDGE_POINTS) and await has_judged(chaos, pages):
                break
            name = f"judge-{number % 2 + 1}"
            directory = directories[name]
            await deployment.kill(name)
            await deployment.start(name, point, state_dir=directory)
            assert await deployment.wait_for_end(name) == -9, deployment.log(name)[-2000:]
            kills[point] += 1
            if number % 3 == 0:
                await asyncio.to_thread(shutil.rmtree, directory / chaos.namespace / "judge")
                before = deployment.log(name).count('"restored"')
                await deployment.start(name, state_dir=directory)
                await until(
                    lambda name=name, before=before: deployment.log(name).count('"restored"') > before
                )
                restored[name] += 1
            else:
                await deployment.start(name, state_dir=directory)
            await asyncio.sleep(rng.uniform(0.5, 2) * every**0.5)

    async def queries() -> None:
        """A query whose directory is deleted each time."""
        file = tmp_path / "pages.jsonl"
        file.write_text(json.dumps({"url": "http://a/x", "text": "nothing of the sort"}) + "\n")
        own = chaos.model_copy(update={"state_dir": tmp_path / "query"})
        while not (done.is_set() and restored["query"]):
            if await has_trimmed(chaos):
                code, _, errors = await neardup_process(own, "query", str(file))
                assert code == 0, errors
                restored["query"] += "restored" in errors
                await asyncio.to_thread(shutil.rmtree, own.state_dir)
            await asyncio.sleep(5)

    async with Deployment(chaos, tmp_path) as deployment:
        crawling = asyncio.create_task(crawler.crawl(chaos, done, 0.1, fast=pages))
        await deployment.start("worker")
        asking = asyncio.create_task(queries())
        await asyncio.gather(trimmer(deployment), judges(deployment))
        done.set()
        await asyncio.gather(crawling, asking)

        async def judged() -> bool:
            findings = await audit(chaos)
            return not (findings.missing or findings.waiting)

        await until(judged)
        findings = await audit(chaos)
        assert findings.clean, findings
        starts = await log_starts(chaos)
        for name in ("trim", "judge-1", "judge-2", "worker"):
            assert await deployment.stop(name) == 0, deployment.log(name)[-2000:]
        assert await recompute(chaos) == []
        outcome = f"kills {dict(kills)}, restored {dict(restored)}"
        report(f"{crawler.published} pages, logs start at {starts}; {outcome}")
        assert min(starts) > 0
        assert crawler.published >= max(300, pages)
        assert all(restored[name] for name in ("judge-1", "judge-2", "query")), restored
        assert set(kills) == {*JUDGE_POINTS, *TRIM_POINTS}
        await refuse_what_was_trimmed_by_hand(deployment, tmp_path / "judge-1")


async def refuse_what_was_trimmed_by_hand(deployment: Deployment, directory: Path) -> None:
    """All decisions are deleted that any checkpoint needs: whoever has no state is refused, by name."""
    chaos = deployment.settings
    names, end = TopicNames(chaos.namespace), max(each.decided for each in kept(chaos)) + 1
    async with broker_metadata.connect(chaos) as client:
        bounds = await broker_metadata.log_bounds(client, [names.decisions])
    (log,) = bounds.values()
    async with admin_of(chaos) as admin:
        where = TopicPartition(names.decisions, 0)
        await admin.delete_records({where: RecordsToDelete(before_offset=max(end, log.end))})
    await asyncio.to_thread(shutil.rmtree, directory)
    await deployment.start("judge-refused", state_dir=directory)
    assert await deployment.wait_for_end("judge-refused") == EXIT_REFUSED
    said = deployment.log("judge-refused")
    for each in kept(chaos):
        assert f"checkpoint {each.name}: " in said
        assert str(each.decided) in said


def kept(settings: Settings) -> list[Manifest]:
    """All checkpoints."""
    catalogue = Catalogue(settings.checkpoints or "")
    return [
        catalogue.read(name) for journal in catalogue.journals() for name in catalogue.kept(journal, JUDGE)
    ]


async def log_starts(settings: Settings) -> list[int]:
    """Where the logs of decisions and journal start."""
    names = TopicNames(settings.namespace)
    async with broker_metadata.connect(settings) as client:
        bounds = await broker_metadata.log_bounds(client, [names.decisions, names.journal])
    return [bounds[TopicPartition(topic, 0)].start for topic in (names.decisions, names.journal)]


async def has_judged(settings: Settings, pages: int) -> bool:
    """Whether there are verdicts of about so many pages; markers of transactions count as well."""
    async with broker_metadata.connect(settings) as client:
        bounds = await broker_metadata.log_bounds(client, [TopicNames(settings.namespace).verdicts])
    return sum(each.end for each in bounds.values()) >= pages


async def has_trimmed(settings: Settings) -> bool:
    return min(await log_starts(settings)) > 0

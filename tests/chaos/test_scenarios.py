"""Single accidents with everything else running; afterwards the witness finds every page judged once."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import asynccontextmanager
from pathlib import Path
from string import ascii_letters

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.structs import OffsetAndMetadata

from stream.kafka.names import TopicNames
from stream.kafka.topic_plan import plan
from stream.messages.journal import Rows, decode_journal
from stream.roles.auditor.audit import audit
from stream.roles.auditor.recompute import recompute
from stream.settings import Settings
from tests.chaos.deployment import Crawler, Deployment
from tests.chaos.witness import bear_witness
from tests.kafka.worker_helpers import admin_of, read_all
from tests.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.chaos]


@pytest.fixture
def quick(settings: Settings) -> Settings:
    """Short sessions, small generations: accidents are noticed, and tables freeze, within seconds."""
    return settings.model_copy(
        update={
            "session_seconds": 1.5, "shutdown_seconds": 3.0, "flush_seconds": 0.5, "tables_generation": 48,
            "tables_memory": 0,
        }
    )  # fmt: skip


async def crawl(settings: Settings, pages: int, seed: int = 1) -> None:
    await Crawler(seed).crawl(settings, asyncio.Event(), 0, pages)


async def judged(settings: Settings, at_least: int = 1) -> None:
    """Wait until every page has a verdict."""

    async def done() -> bool:
        findings = await audit(settings)
        return findings.pages >= at_least and not (findings.missing or findings.waiting)

    await until(done)


async def all_right(settings: Settings) -> None:
    """Every page exactly once, with the oracle's verdict; and deciding again changes nothing."""
    said = await bear_witness(settings)
    assert not said.missing
    assert not said.repeated
    assert not said.different, said.different[:3]
    assert await recompute(settings) == []


async def test_redelivery_of_everything_gives_not_one_new_verdict(quick: Settings, tmp_path: Path) -> None:
    names = TopicNames(quick.namespace)
    async with Deployment(quick, tmp_path) as deployment:
        await crawl(quick, 300)
        await deployment.start("worker")
        await deployment.start("judge")
        await judged(quick, 300)
        before = await read_all(quick, names.verdicts)
        length = len(await read_all(quick, names.journal))
        assert await deployment.stop("worker") == 0
        async with _member(quick, names.workers) as consumer:
            partitions = [TopicPartition(names.pages, p) for p in range(quick.partitions)]
            consumer.assign(partitions)
            kept = await consumer._coordinator.fetch_committed_offsets(partitions)
            await consumer.commit({tp: OffsetAndMetadata(0, kept[tp].metadata) for tp in partitions})
        await deployment.start("worker")

        async def read_again() -> bool:
            rows = await read_all(quick, names.journal)
            return len(rows) > length and '"redelivered": 300' in deployment.log("judge")

        await until(read_again)
        await deployment.stop("judge")
    after = await read_all(quick, names.verdicts)
    assert {(r.partition, r.offset) for r in after} == {(r.partition, r.offset) for r in before}
    await all_right(quick)


@pytest.mark.night
async def test_a_judge_killed_with_one_batch_decided_ahead_of_the_other(
    quick: Settings, tmp_path: Path
) -> None:
    """The batch before is under way, perhaps committed; what was decided of both is in RAM alone."""
    names = TopicNames(quick.namespace)
    async with Deployment(quick.model_copy(update={"judge_rows": 4}), tmp_path) as deployment:
        await deployment.start("worker")

        async def opened() -> bool:
            return len(await read_all(quick, names.journal)) > 0

        async def fingerprinted() -> bool:
            return len(await _journalled(quick, names.journal)) == 400

        await until(opened)
        await Crawler(1).crawl(quick, asyncio.Event(), 0.02, 400)  # slowly: into many records of the journal
        await until(fingerprinted)
        for turn in (1, 3):
            await deployment.start("judge", f"judge.ahead:{turn}")
            assert await deployment.wait_for_end("judge") == -9, deployment.log("judge")[-2000:]
        await deployment.start("judge")
        await judged(quick, 400)
        assert await deployment.stop("judge") == 0
    await all_right(quick)


async def test_a_refused_verdict_aborts_its_whole_transaction(quick: Settings, tmp_path: Path) -> None:
    """Rule 10: aiokafka commits a transaction although one of its sends failed; the judge must not."""
    names = TopicNames(quick.namespace)
    async with Deployment(quick, tmp_path) as deployment:
        await deployment.start("worker")
        await deployment.start("judge")
        await crawl(quick, 100)
        await judged(quick, 100)
        await _limit(quick, names.verdicts, 700)
        # Of random letters: verdicts are compressed.
        long_url = "http://long.example/" + "".join(random.Random(3).choices(ascii_letters, k=2000))
        await _publish(quick, json.dumps({"url": long_url, "text": "one two three four five " * 9}).encode())
        assert await deployment.wait_for_end("judge") != 0
        assert "too large" in deployment.log("judge").lower() or "MessageSizeTooLarge" in deployment.log(
            "judge"
        )
        await _limit(quick, names.verdicts, None)
        await deployment.start("judge")
        await judged(quick, 101)
        await deployment.stop("judge")
    await all_right(quick)


@pytest.mark.night
async def test_a_refused_append_ends_the_worker_before_the_next_one(quick: Settings, tmp_path: Path) -> None:
    """Rule 2: an idempotent producer lets batch 2 in after batch 1 was refused; the worker must not try."""
    names = TopicNames(quick.namespace)
    async with Deployment(quick, tmp_path) as deployment:
        await deployment.start("judge")
        await deployment.start("worker")
        await crawl(quick, 50)
        await judged(quick, 50)
        await _limit(quick, names.journal, 1500)
        await crawl(quick, 200, seed=2)
        assert await deployment.wait_for_end("worker") != 0
        await _limit(quick, names.journal, None)
        await deployment.start("worker")
        await judged(quick, 250)
        assert '"event": "source_gap"' not in deployment.log("judge")
        await deployment.stop("judge")
    await all_right(quick)


@pytest.mark.night
async def test_the_judges_group_offset_is_only_for_lag_tools(quick: Settings, tmp_path: Path) -> None:
    names = TopicNames(quick.namespace)
    async with Deployment(quick, tmp_path) as deployment:
        await deployment.start("worker")
        await deployment.start("judge")
        await crawl(quick, 150)
        await judged(quick, 150)
        await deployment.stop("judge")
        await asyncio.sleep(quick.session_seconds + 1)  # a static member leaves by silence only
        async with _member(quick, names.judge) as consumer:
            journal = TopicPartition(names.journal, 0)
            consumer.assign([journal])
            await consumer.commit({journal: 0})
        await crawl(quick, 150, seed=2)
        await deployment.start("judge")
        await judged(quick, 300)
        await deployment.stop("judge")
    await all_right(quick)


@asynccontextmanager
async def _member(settings: Settings, group: str):
    """A consumer that may commit for a group nobody else is in."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings.bootstrap_servers, group_id=group, enable_auto_commit=False
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def _limit(settings: Settings, topic: str, size: int | None) -> None:
    """Change a topic's `max.message.bytes`; None gives it back what it was made with."""
    # The request replaces the whole configuration of the topic.
    config = next(each for each in plan(settings) if each.name == topic).create_config(dev=True)
    if size is not None:
        config = {**config, "max.message.bytes": str(size)}
    async with admin_of(settings) as admin:
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=config)])


async def _journalled(settings: Settings, journal: str) -> list[int]:
    """Offsets of the pages whose fingerprints are in the journal."""
    records = [decode_journal(each.value, each.offset) for each in await read_all(settings, journal)]
    return [offset for rows in records if isinstance(rows, Rows) for offset in rows.offset.tolist()]


async def _publish(settings: Settings, value: bytes) -> None:
    async with AIOKafkaProducer(bootstrap_servers=settings.bootstrap_servers) as producer:
        await producer.send_and_wait(f"{settings.namespace}.pages", value)

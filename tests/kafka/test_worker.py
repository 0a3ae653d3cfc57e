"""The worker on a real broker, rule by rule (docs/architecture/rules.md has the rules)."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError
from structlog.testing import capture_logs

from stream.errors import RefusedError
from stream.fingerprint.row import Status
from stream.kafka.names import TopicNames
from stream.roles.worker import positions
from stream.roles.worker.polling import POLL_RECORDS
from stream.settings import Settings
from tests.kafka.judge_helpers import delete_records, recreate
from tests.kafka.worker_helpers import (
    FileGate,
    admin_of,
    commit,
    committed,
    create,
    exit_code,
    failure_of,
    journal,
    judged,
    members,
    publish,
    read_all,
    topic_id,
    worker_process,
    working,
)
from tests.night import cases
from tests.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("children_find_the_tests")]


@pytest.fixture
def gate(tmp_path: Path) -> FileGate:
    """What pages of `gate.page` wait for."""
    return FileGate(tmp_path / "gate")


def changed(settings: Settings, **options: Any) -> Settings:
    return settings.model_copy(update=options)


async def run_until_pages(settings: Settings, pages: int) -> None:
    async with working(settings) as worker:
        await until(lambda: worker.stats.pages >= pages)


async def has_committed(settings: Settings, end: int, topic_id: str | None = None) -> bool:
    """Whether the group's offset of partition 0 is `end`, made for that topic."""
    found = (await committed(settings)).get(0)
    return found is not None and found[0] == end and topic_id in (None, found[1])


async def until_opened(settings: Settings, running: asyncio.Task[Any]) -> None:
    """Until the group has committed its openings, so that the worker is surely reading."""

    async def opened() -> bool:
        assert not running.done()
        return len(await committed(settings)) == settings.partitions

    await until(opened)


async def test_rule_1_ranges_chain_over_aborted_pages_which_are_not_read(settings: Settings) -> None:
    names = await create(settings)
    producer = AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap_servers, transactional_id=f"{names.namespace}.crawler"
    )
    await producer.start()
    expected = []
    for n in range(12):
        await producer.begin_transaction()
        await producer.send_and_wait(names.pages, b"page %d" % n, partition=0)
        if n % 3 == 1:
            await producer.abort_transaction()
        else:
            await producer.commit_transaction()
            expected.append(f"page {n}")
    await producer.stop()
    await run_until_pages(settings, len(expected))
    records = await journal(settings)
    pages = judged(records)[await topic_id(settings), 0]
    assert [url for _, url in pages] == expected
    ranges = [each for rows in records for each in rows.ranges if each.partition == 0]
    assert ranges[0].opening
    assert (ranges[0].start, ranges[0].rows) == (0, 0)
    assert [each.start for each in ranges[1:]] == [each.end for each in ranges[:-1]]
    assert all(len(rows) <= 512 for rows in records)


async def test_rule_2_failed_append_ends_the_worker_and_commits_nothing(settings: Settings) -> None:
    names = await create(settings)
    running = asyncio.create_task(failure_of(settings))
    await until_opened(settings, running)
    before = await committed(settings)
    async with admin_of(settings) as admin:  # a running worker does not look at the topic again
        config = {"max.message.bytes": "100", "message.timestamp.type": "LogAppendTime"}
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, names.journal, config)])
    await publish(settings, [b"page"])
    assert isinstance(await running, KafkaError)
    own = await topic_id(settings)
    assert before == dict.fromkeys(range(3), (0, own))
    assert await committed(settings) == before | {0: (0, f"{own} 1")}, "no offset, but an attempt"


async def test_rule_2_offsets_are_committed_with_the_topic_id(settings: Settings) -> None:
    await create(settings)
    await publish(settings, [b"page"] * 5, partition=1)
    await run_until_pages(settings, 5)
    own = await topic_id(settings)
    assert await committed(settings) == {0: (0, own), 1: (5, own), 2: (0, own)}


async def test_rule_4_partitions_without_pages_are_opened(settings: Settings) -> None:
    await create(settings)
    async with working(settings) as worker:
        await until(lambda: worker.stats.records == 1)
    (rows,) = await journal(settings)
    assert [(each.partition, each.start, each.end, each.opening) for each in rows.ranges] == [
        (partition, 0, 0, True) for partition in range(3)
    ]


async def test_rule_4_pages_that_retention_took_are_a_declared_gap(settings: Settings) -> None:
    await create(settings)
    await publish(settings, [b"page %d" % n for n in range(10)])
    await run_until_pages(settings, 10)
    await publish(settings, [b"page %d" % n for n in range(10, 20)])
    await delete_records(settings, TopicNames(settings.namespace).pages, 15)
    async with working(settings) as worker:
        await until(lambda: worker.stats.pages >= 5)
        assert worker.stats.lost == 5
    records = await journal(settings)
    pages = judged(records)[await topic_id(settings), 0]
    assert [offset for offset, _ in pages] == [*range(10), *range(15, 20)]
    (gap,) = [each for rows in records for each in rows.ranges if each.lost]
    assert (gap.partition, gap.start, gap.end, gap.rows) == (0, 10, 15, 0)


@pytest.mark.night
async def test_rule_4_retention_that_overtakes_a_running_worker_ends_it(
    settings: Settings, gate: FileGate
) -> None:
    small = changed(settings, worker_memory=1 << 20)
    await create(small)
    await publish(small, [gate.page + b" " + b"x" * 20_000 for _ in range(300)])
    running = asyncio.create_task(failure_of(small))
    await until_opened(small, running)
    await delete_records(small, TopicNames(small.namespace).pages, 299)
    gate.open()
    error = await running
    assert isinstance(error, RefusedError)
    assert "retention" in str(error)
    await run_until_pages(small, 1)
    assert judged(await journal(small))[await topic_id(small), 0][-1][0] == 299


async def test_rule_4_recreated_topic_is_a_new_source_from_its_start(settings: Settings) -> None:
    await create(settings)
    await publish(settings, [b"old %d" % n for n in range(5)])
    await run_until_pages(settings, 5)
    old = await topic_id(settings)
    await recreate(settings, TopicNames(settings.namespace).pages)
    await publish(settings, [b"new %d" % n for n in range(8)])
    await commit(settings, 5, metadata=old)  # the broker may have forgotten it with the topic
    await run_until_pages(settings, 8)
    new = await topic_id(settings)
    pages = judged(await journal(settings))
    assert [url for _, url in pages[old, 0]] == [f"old {n}" for n in range(5)]
    assert [url for _, url in pages[new, 0]] == [f"new {n}" for n in range(8)]


@pytest.mark.night
async def test_rule_4_topic_recreated_under_a_running_worker_never_mixes(
    settings: Settings, gate: FileGate
) -> None:
    settings = changed(settings, page_deadline=60.0)
    await create(settings)
    old = await topic_id(settings)
    await publish(settings, [b"old 0", gate.page, b"old 2"])
    async with worker_process(settings) as process:
        await until(lambda: has_committed(settings, 1, old))
        await recreate(settings, TopicNames(settings.namespace).pages)
        new = await topic_id(settings)
        await publish(settings, [b"new %d" % n for n in range(20)])
        gate.open()
        # It either ends, because pages it holds are the old topic's, or was given the new one by the group.

        async def over() -> bool:
            return process.poll() is not None or await has_committed(settings, 20, new)

        await until(over)
    if not await has_committed(settings, 20, new):
        await run_until_pages(settings, 20)
    pages = judged(await journal(settings))
    assert [url for _, url in pages[old, 0]] == ["old 0"]
    assert [url for _, url in pages[new, 0]] == [f"new {n}" for n in range(20)]


@pytest.mark.night
async def test_rule_4_page_fetched_before_the_topic_was_recreated_is_not_appended(
    settings: Settings, gate: FileGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(settings)
    old = await topic_id(settings)
    answers = iter([old, old])

    async def recreated_meanwhile(*_: object) -> str:
        return next(answers, "f" * 32)

    monkeypatch.setattr(positions, "topic_id_at_leaders", recreated_meanwhile)
    running = asyncio.create_task(failure_of(settings))
    await until_opened(settings, running)
    await publish(settings, [b"page"])
    assert "was recreated while it was read" in str(await running)
    assert judged(await journal(settings)) == {}


async def test_rule_7_offset_set_by_an_operator_is_followed(settings: Settings) -> None:
    await create(settings)
    await publish(settings, [b"page %d" % n for n in range(6)])
    await run_until_pages(settings, 6)
    await commit(settings, 4)
    await run_until_pages(settings, 2)
    rows = (await journal(settings))[-1]
    assert [(each.start, each.opening) for each in rows.ranges] == [(4, False)]


async def test_rule_5_poison_page_is_rejected_alone_and_its_bytes_are_kept(settings: Settings) -> None:
    names = await create(settings)
    await publish(settings, [b"a", b"die", b"b", b"bad " + b"x" * 100_000])
    await run_until_pages(settings, 4)
    rows = [
        (Status(rows.status[i]), rows.reason.get(i))
        for rows in await journal(settings)
        for i in range(len(rows))
    ]
    assert rows == [
        (Status.READY, None),
        (Status.REJECTED, "crash"),
        (Status.READY, None),
        (Status.REJECTED, "malformed_json"),
    ]
    letters = sorted(await read_all(settings, names.rejected), key=lambda r: dict(r.headers)["offset"])
    assert [letter.value[:4] for letter in letters] == [b"die", b"bad "]
    assert len(letters[1].value) == 100_004
    own = (await topic_id(settings)).encode()
    headers = dict(letters[0].headers)
    assert headers.pop("cluster")
    assert headers == {
        "reason": b"crash",
        "detail": b"exit code 3",
        "topic": names.pages.encode(),
        "topic_id": own,
        "partition": b"0",
        "offset": b"1",
    }


@pytest.mark.night
async def test_rule_5_held_bytes_are_bounded(settings: Settings, gate: FileGate) -> None:
    small = changed(settings, worker_memory=1 << 20, page_deadline=60.0)
    await create(small)
    size, count = 20_000, 150
    for partition in range(3):
        await publish(small, [gate.page + b" " + b"x" * size for _ in range(count)], partition)
    async with working(small) as worker:
        await until(lambda: worker.stats.paused)
        gate.open()
        await until(lambda: worker.stats.pages == 3 * count)
        record = size + 1024 + len(gate.page) + 1
        assert worker.stats.most_held_bytes <= (1 << 20) + POLL_RECORDS * record
        await until(lambda: worker.stats.held_bytes == 0)
    pages = judged(await journal(small))
    assert {key[1]: len(found) for key, found in pages.items()} == dict.fromkeys(range(3), count)


async def test_rule_5_worker_that_would_reject_the_stream_waits_and_tries_again(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused pages are fingerprinted again, and pass here because the cause has been repaired."""
    monkeypatch.setattr("stream.roles.worker.reject_limit.PAUSE_SECONDS", 0.2)
    limited = changed(settings, reject_limit=0.5)
    await create(limited)
    mended = tmp_path / "mended"
    count = dict.fromkeys(range(3), 600)
    for partition, pages in count.items():
        await publish(limited, [b"bad-until %s" % bytes(mended)] * pages, partition)
    async with working(limited) as worker:
        with capture_logs() as logs:
            await until(lambda: worker.refusing)
            rejected = worker.stats.rejected
            assert 0 < rejected < sum(count.values())
            await until(lambda: sum(each["event"] == "refusing" for each in logs) >= 3)
            assert worker.stats.rejected == rejected, "none at a try"
            assert worker.refusing
            ready, checks = await worker.watch.health.ready()
            assert (ready, checks["accepting"]) == (False, False)
            assert "reject_limit" in str(worker.watch.health.trouble)
            pauses = [each["next_try_seconds"] for each in logs if each["event"] == "refusing"]
            assert pauses[:3] == [0.2, 0.4, 0.8]
            mended.touch()
            await until(lambda: worker.stats.pages == sum(count.values()))
            assert worker.stats.rejected == rejected
        assert not worker.refusing
        assert worker.watch.health.trouble is None
    assert {key[1]: len(pages) for key, pages in judged(await journal(limited)).items()} == count


async def test_sigterm_appends_what_is_finished_and_leaves_the_rest(
    settings: Settings, gate: FileGate
) -> None:
    patient = changed(settings, page_deadline=60.0)
    await create(patient)
    await publish(patient, [b"a", b"b", gate.page, b"d"])
    own = await topic_id(patient)
    async with worker_process(patient) as process:
        await until(lambda: has_committed(patient, 2))
        process.send_signal(signal.SIGTERM)
        assert await exit_code(process) == 0
    assert await committed(patient) == {0: (2, own), 1: (0, own), 2: (0, own)}
    gate.open()
    assert await members(patient, TopicNames(patient.namespace).workers) == 0, "it left the group"
    async with working(patient) as worker:
        await until(lambda: worker.stats.pages == 2)
    pages = judged(await journal(patient))[own, 0]
    assert [offset for offset, _ in pages] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "failpoint", cases(["worker.before_append:2", "worker.append:2"], by_day=["worker.before_append:2"])
)
async def test_killed_worker_loses_and_repeats_nothing(settings: Settings, failpoint: str) -> None:
    settings = changed(settings, session_seconds=2.0)
    await create(settings)
    await publish(settings, [b"page %d" % n for n in range(300)])
    async with worker_process(settings, failpoint) as process:
        assert await exit_code(process) == -signal.SIGKILL
    async with working(settings) as worker:
        await until(lambda: worker.stats.pages > 0)
        await until(lambda: has_committed(settings, 300))
    pages = judged(await journal(settings))[await topic_id(settings), 0]
    assert pages == [(n, f"page {n}") for n in range(300)]

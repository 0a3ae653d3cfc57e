"""Missing pages are waited for and reported, and deleted pages are declared lost and counted (rules 4 and
7)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from aiokafka import TopicPartition

from stream.judge.state.ledger import SourceGap
from stream.kafka import broker_metadata
from stream.kafka.names import TopicNames
from stream.roles.judge.role import JudgeRole
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from tests.kafka.judge_helpers import (
    CLUSTER,
    TOPIC_ID,
    append,
    audited,
    decided,
    delete_records,
    once,
    page,
    part,
    places,
    record,
    verdicts,
)
from tests.kafka.worker_helpers import (
    commit,
    create,
    journal,
    publish,
    running,
)
from tests.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("no_children")]


def gaps_in(logged: list[Any]) -> list[tuple[int, int | None, int]]:
    """Partition, expected offset and start of the gaps that were logged as errors."""
    return [
        (each["partition"], each["expected"], each["start"])
        for each in logged
        if each["event"] == "source_gap" and each["log_level"] == "error"
    ]


async def follow_cure(settings: Settings, logged: list[Any]) -> None:
    """Set the offset of the workers' group as the last gap's error message says, like Kafka's tool."""
    told = [each["message"] for each in logged if each["event"] == "source_gap"][-1]
    cure = re.search(r"stop the workers, set their group to .* \((--to-\S+)(?: (\d+))?\), start them", told)
    assert cure is not None, told
    option, offset = cure.groups()
    key = TopicPartition(TopicNames(settings.namespace).pages, 0)
    async with broker_metadata.connect(settings) as client:
        bounds = (await broker_metadata.log_bounds(client, [key.topic]))[key]
    await commit(settings, {"--to-earliest": bounds.start, "--to-offset": int(offset or 0)}[option])


async def test_rule_7_partition_with_a_gap_waits_until_its_pages_come_and_others_go_on(
    settings: Settings, logged: list[Any]
) -> None:
    await create(settings)
    first = part(0, 0, 3, opening=True), part(1, 0, 3, opening=True)
    beyond, further = part(0, 5, 7), part(0, 7, 8)
    other = part(1, 3, 6)
    async with running(JudgeRole(settings)) as judge:
        await decided(settings, await append(settings, record(*first)))
        await decided(settings, await append(settings, record(beyond, other)))
        await decided(settings, await append(settings, record(further)))
        assert places(await verdicts(settings)) == once(*first, other)
        gap = SourceGap(CLUSTER, "pages", TOPIC_ID, 0, expected=3, start=5)
        await until(lambda: list(judge.stats.gaps.values()) == [gap])
        assert gaps_in(logged) == [(0, 3, 5)]
        (entry,) = [each for each in logged if each["event"] == "source_gap"]
        assert (entry["topic"], entry["topic_id"]) == ("pages", TOPIC_ID)
        assert "set their group to 3 (--to-offset 3)" in entry["message"]
        # The worker was reset, and cuts its ranges otherwise: a little of it overlaps with what was judged.
        await decided(settings, await append(settings, record(part(0, 2, 6)), record(part(0, 6, 8))))
        await until(lambda: not judge.stats.gaps)
        assert judge.stats.redelivered == 1
    assert [each["event"] for each in logged].count("source_gap_healed") == 1
    # One that heals within a batch is told and does not linger; another one is told again by the next judge.
    more = part(0, 10, 12), part(0, 8, 10), part(0, 10, 11), part(0, 12, 13)
    appended = await append(settings, *map(record, more))
    async with running(JudgeRole(settings)) as judge:
        await decided(settings, appended)
        await until(lambda: [(gap.expected, gap.start) for gap in judge.stats.gaps.values()] == [(11, 12)])
    async with running(JudgeRole(settings)):
        await decided(settings, await append(settings, record(part(0, 13, 14))))
    assert gaps_in(logged) == [(0, 3, 5), (0, 8, 10), (0, 11, 12), (0, 11, 13)]
    assert places(await verdicts(settings)) == once(*first, other, part(0, 3, 11))


async def test_rule_4_source_without_an_opening_is_a_gap(settings: Settings, logged: list[Any]) -> None:
    await create(settings)
    recreated = "cd" * 16
    unseen, opened = part(0, 0, 2, topic_id=recreated), part(0, 0, 2, topic_id=recreated, opening=True)
    async with running(JudgeRole(settings)) as judge:
        known = part(0, 0, 2, opening=True)
        await decided(settings, await append(settings, record(known), record(unseen)))
        assert places(await verdicts(settings)) == once(known)
        await until(lambda: [gap.topic_id for gap in judge.stats.gaps.values()] == [recreated])
        assert gaps_in(logged) == [(0, None, 0)]
        await decided(settings, await append(settings, record(opened)))
        await until(lambda: not judge.stats.gaps)
    assert places(await verdicts(settings)) == once(known, opened)


@pytest.mark.night
@pytest.mark.parametrize(("before", "after"), [(0, 0), (2, 0), (0, 2)], ids=["whole", "trimmed", "overtaken"])
async def test_rule_7_group_offset_set_before_anybody_read_is_a_gap_that_the_printed_cure_heals(
    settings: Settings, logged: list[Any], before: int, after: int
) -> None:
    """The partition is unknown yet, so its log start, committed manually, is an opening. What retention takes
    after the cure is lost."""
    names = await create(settings)
    await publish(settings, [page(f"http://a/{n}", n) for n in range(9)])
    await commit(settings, 6)
    async with running(JudgeRole(settings)) as judge:
        async with running(WorkerRole(settings)):
            await until(lambda: len(judge.stats.gaps) == 1)
        assert gaps_in(logged) == [(0, None, 6)]
        await delete_records(settings, names.pages, before)
        await follow_cure(settings, logged)
        await delete_records(settings, names.pages, before + after)
        async with running(WorkerRole(settings)) as worker:
            findings = await audited(settings, 9 - before - after)
        assert (findings.missing, findings.lost, worker.stats.lost) == (0, after, after)
        assert findings.clean == (not after)
        await until(lambda: not judge.stats.gaps)
    assert len(gaps_in(logged)) == 1


async def test_rule_4_partition_without_a_commit_begins_where_the_judge_has_come_to(
    settings: Settings, logged: list[Any]
) -> None:
    """The group's offsets were deleted. Judged pages are not read again, and the journal gets no copies."""
    await create(settings)
    pages = [page(f"http://a/{n}", n) for n in range(12)]
    await publish(settings, pages[:9])
    async with running(JudgeRole(settings)):
        async with running(WorkerRole(settings)):
            assert (await audited(settings, 9)).clean
        await publish(settings, pages[9:])
        for partition in range(3):
            await commit(settings, 7, metadata="f" * 32, partition=partition)  # of no topic that there is
        before = len(await journal(settings))
        async with running(WorkerRole(settings)):
            assert (await audited(settings, 12)).clean
    rows = (await journal(settings))[before:]
    ranges = [(each.start, each.end) for each_rows in rows for each in each_rows.ranges if each.rows]
    assert (min(ranges)[0], max(ranges)[1]) == (9, 12)
    missing = [each for each in logged if each["event"] == "group_offset_missing"]
    assert {each["partition"]: each["judged"] for each in missing} == {0: 9, 1: 0, 2: 0}

"""Missing pages are waited for and reported, and deleted pages are declared lost and counted (rules 4 and
7)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from aiokafka import TopicPartition

from stream.errors import StateError
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
    decisions,
    delete_records,
    ledgers,
    once,
    page,
    part,
    places,
    record,
    trim_decisions,
    verdicts,
)
from tests.kafka.worker_helpers import (
    commit,
    committed,
    create,
    failure_of,
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


async def lost_of(settings: Settings) -> dict[tuple[str, int], tuple[int, int]]:
    """By topic id and partition, what the decisions say: the expected offset, and how many were lost."""
    return {
        (source.topic_id, source.partition): (source.expected, source.lost)
        for each in await decisions(settings)
        for source in each.sources
    }


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
    assert places(await verdicts(settings)) == once(*first, other, part(0, 3, 8))
    assert [each["event"] for each in logged].count("source_gap_healed") == 1


@pytest.mark.night
async def test_rule_7_gap_that_heals_within_a_batch_is_told_and_does_not_linger(
    settings: Settings, logged: list[Any]
) -> None:
    await create(settings)
    parts = part(0, 0, 2, opening=True), part(0, 4, 6), part(0, 2, 4), part(0, 4, 5), part(0, 6, 7)
    appended = await append(settings, *(record(each) for each in parts))
    async with running(JudgeRole(settings)) as judge:
        await decided(settings, appended)
        await until(lambda: len(judge.stats.gaps) == 1)
        (gap,) = judge.stats.gaps.values()
        assert (gap.expected, gap.start) == (5, 6)
    assert gaps_in(logged) == [(0, 2, 4), (0, 5, 6)]
    assert places(await verdicts(settings)) == once(part(0, 0, 5))


@pytest.mark.night
async def test_rule_7_gap_is_told_again_by_the_next_judge(settings: Settings, logged: list[Any]) -> None:
    await create(settings)
    async with running(JudgeRole(settings)):
        await decided(settings, await append(settings, record(part(0, 0, 2, opening=True))))
        await decided(settings, await append(settings, record(part(0, 3, 4))))
    async with running(JudgeRole(settings)):
        await decided(settings, await append(settings, record(part(0, 4, 5))))
    assert gaps_in(logged) == [(0, 2, 3), (0, 2, 4)]
    assert places(await verdicts(settings)) == once(part(0, 0, 2))


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


async def test_rule_4_opening_above_the_expected_offset_counts_what_was_lost(settings: Settings) -> None:
    """The group's offsets were deleted, and retention deleted pages since, so only the log start is known."""
    await create(settings)
    first, reopened = part(0, 0, 4, opening=True), part(0, 9, 11, opening=True)
    async with running(JudgeRole(settings)) as judge:
        await decided(settings, await append(settings, record(first), record(reopened)))
        await decided(settings, await append(settings, record(part(0, 0, 4, opening=True))))
        assert judge.stats.gaps == {}
    assert places(await verdicts(settings)) == once(first, reopened)
    assert (await lost_of(settings))[TOPIC_ID, 0] == (11, 5)


@pytest.mark.night
async def test_rule_4_declared_gap_is_counted_once_however_often_it_is_declared(settings: Settings) -> None:
    await create(settings)
    first, declared = part(0, 0, 4, opening=True), part(0, 4, 9, lost=True)
    again, rest = part(0, 2, 10, lost=True), part(0, 10, 12)
    records = [record(each) for each in (first, declared, declared, again, rest)]
    async with running(JudgeRole(settings)) as judge:
        appended = await append(settings, *records)
        await decided(settings, appended)
        assert judge.stats.gaps == {}
    assert places(await verdicts(settings)) == once(first, rest)
    assert (await lost_of(settings))[TOPIC_ID, 0] == (12, 6)


@pytest.mark.night
async def test_rule_7_group_offset_set_too_high_is_a_gap_and_set_back_heals(
    settings: Settings, logged: list[Any]
) -> None:
    """A worker recovers after following the remedy in the error message."""
    await create(settings)
    pages = [page(f"http://a/{n}", n) for n in range(9)]
    await publish(settings, pages[:3])

    async def all_committed(end: int) -> bool:
        return (await committed(settings)).get(0, (0, ""))[0] == end

    async with running(JudgeRole(settings)) as judge:
        async with running(WorkerRole(settings)):
            await until(lambda: all_committed(3))
        await publish(settings, pages[3:])
        await commit(settings, 6)
        async with running(WorkerRole(settings)):
            await until(lambda: len(judge.stats.gaps) == 1)
            await until(lambda: all_committed(9))
        assert [gap[1:] for gap in gaps_in(logged)] == [(3, 6)]
        assert len(await verdicts(settings)) == 3
        await follow_cure(settings, logged)
        async with running(WorkerRole(settings)):
            assert (await audited(settings, 9)).clean
        await until(lambda: not judge.stats.gaps)


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


@pytest.mark.night
async def test_rule_4_and_so_it_does_where_decisions_before_a_ledger_record_were_deleted(
    settings: Settings, logged: list[Any]
) -> None:
    settings = settings.model_copy(update={"checkpoint_interval": 0.1})
    names = await create(settings)
    pages = [page(f"http://a/{n}", n) for n in range(12)]
    await publish(settings, pages[:9])
    async with running(JudgeRole(settings)):
        async with running(WorkerRole(settings)):
            assert (await audited(settings, 9)).clean
        ledger = await trim_decisions(settings, {0: 9, 1: 0, 2: 0})
        await publish(settings, pages[9:])
        for partition in range(3):
            await commit(settings, 7, metadata="f" * 32, partition=partition)
        before = len(await journal(settings))
        async with running(WorkerRole(settings)) as worker:
            await until(lambda: worker.stats.pages == 3)
    rows = (await journal(settings))[before:]
    ranges = [(each.start, each.end) for each_rows in rows for each in each_rows.ranges if each.rows]
    assert (min(ranges)[0], max(ranges)[1]) == (9, 12)
    missing = [each for each in logged if each["event"] == "group_offset_missing"]
    assert {each["partition"]: each["judged"] for each in missing} == {0: 9, 1: 0, 2: 0}

    # Without a ledger record, nobody can say whether a source is new.
    end = max(await ledgers(settings), default=ledger) + 1
    await delete_records(settings, names.decisions, end)
    for partition in range(3):
        await commit(settings, 7, metadata="f" * 32, partition=partition)
    error = await failure_of(settings)
    assert isinstance(error, StateError)
    assert f"topic {names.decisions}: begins at offset {end} and has no ledger record" in str(error)

"""Attempts at pages that end whole workers are counted in the group's commits, until the page is rejected
(rule 5)."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from stream.fingerprint.row import Status
from stream.settings import Settings
from tests.kafka.worker_helpers import (
    FileGate,
    committed,
    create,
    exit_code,
    journal,
    judged,
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
def quick(settings: Settings) -> Settings:
    """Settings with a short session, so that killed workers are noticed soon, and a long page deadline."""
    return settings.model_copy(update={"session_seconds": 2.0, "page_deadline": 60.0, "worker_processes": 2})


async def has_committed(settings: Settings, partition: int, offset: int, metadata: str) -> bool:
    return (await committed(settings)).get(partition) == (offset, metadata)


async def killed_by_a_page(settings: Settings) -> None:
    async with worker_process(settings) as process:
        assert await exit_code(process) == -signal.SIGKILL


async def statuses(settings: Settings) -> dict[tuple[int, int], tuple[Status, str | None]]:
    """By partition and offset, status and reason of the rows that a judge would judge."""
    found: dict[tuple[int, int], tuple[Status, str | None]] = {}
    for rows in await journal(settings):
        first = 0
        for each in rows.ranges:
            for i in range(first, first + each.rows):
                place = each.partition, int(rows.offset[i])
                found.setdefault(place, (Status(rows.status[i]), rows.reason.get(i)))
            first += each.rows
    return found


READY = (Status.READY, None)
GIVEN_UP = (Status.REJECTED, "crash")


async def all_but_one_are_judged(settings: Settings, counts: dict[int, int], poison: tuple[int, int]) -> None:
    """Check that a newly started worker appends every page once, and rejects the poison page without trying
    it."""
    async with working(settings) as worker:
        await until(lambda: worker.stats.rejected == 1)
        ends = {partition: counts.get(partition, 0) for partition in range(3)}

        async def done() -> bool:
            return {partition: end for partition, (end, _) in (await committed(settings)).items()} == ends

        await until(done)
    own = await topic_id(settings)
    assert await committed(settings) == {partition: (end, own) for partition, end in ends.items()}
    due = {(partition, n): READY for partition, count in counts.items() for n in range(count)}
    assert await statuses(settings) == due | {poison: GIVEN_UP}
    for (_, partition), pages in judged(await journal(settings)).items():
        assert [offset for offset, _ in pages] == list(range(counts[partition])), "each once"


async def test_rule_5_a_page_that_takes_three_workers_down_is_given_up(quick: Settings) -> None:
    """The first worker dies with other pages in flight, of its partition and another; the next two with it
    alone."""
    names = await create(quick)
    own = await topic_id(quick)
    await publish(quick, [b"a", b"b", b"take-down", b"c", b"d"], partition=0)
    await publish(quick, [b"page %d" % n for n in range(100)], partition=1)
    await killed_by_a_page(quick)
    for count in (2, 3):
        await killed_by_a_page(quick)
        assert (await committed(quick))[0] == (2, f"{own} {count} 2")
    await all_but_one_are_judged(quick, {0: 5, 1: 100}, (0, 2))
    (letter,) = await read_all(quick, names.rejected)
    headers = dict(letter.headers)
    assert (letter.value, headers["reason"]) == (b"take-down", b"crash")
    assert b"worker" in headers["detail"]


async def test_rule_5_a_page_that_is_long_at_hand_of_a_running_worker_is_counted(
    quick: Settings, tmp_path: Path
) -> None:
    """It is counted although earlier pages are in the journal, and ends three workers too."""
    await create(quick)
    own, last_moment = await topic_id(quick), FileGate(tmp_path / "last-moment")
    await publish(quick, [b"a"])
    async with worker_process(quick) as process:
        await until(lambda: has_committed(quick, 0, 1, own))
        await publish(quick, [last_moment.page.replace(b"wait", b"take-down"), b"b"])
        await until(lambda: has_committed(quick, 0, 1, f"{own} 1"))
        last_moment.open()
        assert await exit_code(process) == -signal.SIGKILL
    await killed_by_a_page(quick)
    await killed_by_a_page(quick)
    await all_but_one_are_judged(quick, {0: 3}, (0, 1))


@pytest.mark.parametrize(
    "failpoint", cases(["worker.before_append:1", "worker.append:1"], by_day=["worker.append:1"])
)
async def test_rule_5_workers_killed_between_pages_cost_none(quick: Settings, failpoint: str) -> None:
    """A page that succeeded is cleared before the next is tried, so such kills never add up."""
    await create(quick)
    own = await topic_id(quick)
    for partition in range(3):
        await publish(quick, [b"a"], partition)

    async def all_committed() -> bool:
        return await committed(quick) == dict.fromkeys(range(3), (1, own))

    async with working(quick):
        await until(all_committed)
    await publish(quick, [b"b", b"c", b"d"])  # and no openings: the next append is of these
    for _ in range(4):
        async with worker_process(quick, failpoint) as process:
            assert await exit_code(process) == -signal.SIGKILL
        assert (await committed(quick))[0][1] == f"{own} 1"
    async with working(quick):
        await until(lambda: has_committed(quick, 0, 4, f"{own} 1"))
    assert (await committed(quick))[0] == (4, own), "handed over in good order"
    places = [(0, 0), (1, 0), (2, 0), (0, 1), (0, 2), (0, 3)]
    assert await statuses(quick) == dict.fromkeys(places, READY)


@pytest.mark.night
async def test_rule_5_handing_over_in_good_order_counts_for_nothing(quick: Settings, tmp_path: Path) -> None:
    """A page stays in flight while its partition is reassigned repeatedly."""
    await create(quick)
    own, gate = await topic_id(quick), FileGate(tmp_path / "gate")
    for partition in range(3):
        await publish(quick, [gate.page], partition)

    async def all_at_hand() -> bool:
        return await committed(quick) == dict.fromkeys(range(3), (0, f"{own} 1"))

    async with working(quick) as steady:
        await until(all_at_hand)
        for _ in range(3):
            async with working(quick) as other:
                await until(lambda other=other: other.stats.partitions + steady.stats.partitions == 3)
                await until(lambda other=other: 0 < other.stats.partitions < 3)
                await until(all_at_hand)
            await until(lambda: steady.stats.partitions == 3)
    assert await committed(quick) == dict.fromkeys(range(3), (0, own))

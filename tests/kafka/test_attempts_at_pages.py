"""Attempts at pages that end whole workers are counted in the group's commits, until the page is rejected
(rule 5)."""

from __future__ import annotations

import signal

import pytest

from stream.fingerprint.row import Status
from stream.settings import Settings
from tests.kafka.worker_helpers import (
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
from tests.waiting import until, until_answer

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("children_find_the_tests")]


@pytest.fixture
def quick(settings: Settings) -> Settings:
    """Settings with a short session, so that killed workers are noticed soon, and a long page deadline."""
    return settings.model_copy(update={"session_seconds": 2.0, "page_deadline": 60.0, "worker_processes": 2})


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


@pytest.mark.parametrize(
    "failpoint", cases(["worker.before_append:1", "worker.append:1"], by_day=["worker.append:1"])
)
async def test_rule_5_workers_killed_between_pages_cost_none(quick: Settings, failpoint: str) -> None:
    """A page that succeeded is cleared before the next is tried, so such kills never add up."""
    await create(quick)
    own = await topic_id(quick)
    for partition in range(3):
        await publish(quick, [b"a"], partition)
    async with working(quick):
        await until_answer(lambda: committed(quick), lambda found: found == dict.fromkeys(range(3), (1, own)))
    await publish(quick, [b"b", b"c", b"d"])  # and no openings: the next append is of these
    for _ in range(4):
        async with worker_process(quick, failpoint) as process:
            assert await exit_code(process) == -signal.SIGKILL
        assert (await committed(quick))[0][1] == f"{own} 1"
    async with working(quick):
        await until_answer(lambda: committed(quick), lambda found: found.get(0) == (4, f"{own} 1"))
    assert (await committed(quick))[0] == (4, own), "handed over in good order"
    places = [(0, 0), (1, 0), (2, 0), (0, 1), (0, 2), (0, 3)]
    assert await statuses(quick) == dict.fromkeys(places, (Status.READY, None))


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
    # A new worker appends every other page once, and rejects this one without trying it.
    ends = {0: 5, 1: 100, 2: 0}
    async with working(quick) as worker:
        await until(lambda: worker.stats.rejected == 1)
        await until_answer(
            lambda: committed(quick), lambda found: {key: end for key, (end, _) in found.items()} == ends
        )
    assert await committed(quick) == {partition: (end, own) for partition, end in ends.items()}
    due = {(partition, n): (Status.READY, None) for partition, end in ends.items() for n in range(end)}
    assert await statuses(quick) == due | {(0, 2): (Status.REJECTED, "crash")}
    for (_, partition), pages in judged(await journal(quick)).items():
        assert [offset for offset, _ in pages] == list(range(ends[partition])), "each once"
    (letter,) = await read_all(quick, names.rejected)
    headers = dict(letter.headers)
    assert (letter.value, headers["reason"]) == (b"take-down", b"crash")
    assert b"worker" in headers["detail"]

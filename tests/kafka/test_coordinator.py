"""Coordinators that move or load their groups. Roles wait for unreachable brokers, log it, and go on."""

from __future__ import annotations

import struct
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from stream.roles.elector.role import ElectorRole
from stream.roles.judge.role import JudgeRole
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from tests.kafka.judge_helpers import append, decided, once, part, places, record, verdicts
from tests.kafka.proxy import FETCH, LIST_OFFSETS, OFFSET_FETCH, Proxy, Request
from tests.kafka.worker_helpers import (
    committed,
    create,
    journal,
    publish,
    running,
    working,
)
from tests.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("children_find_the_tests")]
LOADING, NOT_COORDINATOR = 14, 16


def through(settings: Settings, proxy: Proxy) -> Settings:
    return settings.model_copy(update={"bootstrap_servers": proxy.bootstrap_servers})


def refuse_offsets(proxy: Proxy, *codes: int) -> None:
    """Answer the next questions for committed offsets with these errors, as a coordinator that moved does."""
    left = list(codes)

    def answer(request: Request) -> bytes | None:
        if request.api != OFFSET_FETCH or not left:
            return None
        assert request.version == 3, "the answer below is of version 3"
        throttle_ms, topics = 0, 0
        return struct.pack(">iih", throttle_ms, topics, left.pop(0))

    proxy.answer = answer


async def test_rule_4_coordinator_that_moved_is_not_a_group_without_commits(
    settings: Settings, proxy: Proxy
) -> None:
    await create(settings)
    await publish(settings, [b"page %d" % n for n in range(20)])
    async with working(settings) as worker:
        await until(lambda: worker.stats.pages == 20)
    assert (await committed(settings))[0][0] == 20
    before = len(await journal(settings))
    # aiokafka asks too, to find positions by itself: enough for both.
    refuse_offsets(proxy, *(refused := [NOT_COORDINATOR, LOADING] * 8))
    with capture_logs() as logged:
        async with working(through(settings, proxy)) as worker:
            await until(lambda: worker.opened is not None)
            await publish(settings, [b"one more"])
            await until(lambda: worker.stats.pages > 0)
    assert len(proxy.seen) == len(refused)
    assert not [each for each in logged if each["event"] == "partition_opened"]
    ranges = [each for rows in (await journal(settings))[before:] for each in rows.ranges]
    assert [(each.start, each.end, each.opening) for each in ranges if each.partition == 0] == [
        (20, 21, False)
    ]


def behind(settings: Settings, proxy: Proxy, state_dir: Path) -> Settings:
    """Settings of a role with a directory of its own that sees the broker through the proxy."""
    return settings.model_copy(update={"bootstrap_servers": proxy.bootstrap_servers, "state_dir": state_dir})


async def is_ready(role: WorkerRole | JudgeRole | ElectorRole) -> bool:
    return (await role.watch.health.ready())[0]


def waited_for(logged: list[Any], wanted: str) -> bool:
    return any(each["event"] == "waiting" and each["wanted"] == wanted for each in logged)


@pytest.mark.night
async def test_judge_waits_while_the_leader_of_the_journal_is_silent(
    settings: Settings, proxy: Proxy, tmp_path: Path
) -> None:
    settings = settings.model_copy(update={"session_seconds": 1.0})
    names = await create(settings)
    parts = [part(0, 0, 3, opening=True), part(0, 3, 5), part(0, 5, 9)]
    standby = JudgeRole(behind(settings, proxy, tmp_path / "standby"))
    ready = partial(is_ready, standby)
    with capture_logs() as logged:
        async with running(JudgeRole(settings)) as leader:
            await decided(settings, await append(settings, record(parts[0])))
            async with running(standby):
                await until(ready)
                journal = names.journal.encode()
                proxy.withhold = lambda sent: sent.api in (FETCH, LIST_OFFSETS) and journal in sent.frame
                await until(lambda: proxy.seen)  # what was asked before may still be answered with a record
                await decided(settings, await append(settings, record(parts[1])))
                await until(lambda: waited_for(logged, f"records of topic {names.journal}"))
                assert not await ready()
                assert standby.watch.health.live()[0]
                leader.stop()
                proxy.withhold = lambda _: False
                await until(ready)
                await decided(settings, await append(settings, record(parts[2])))
    assert places(await verdicts(settings)) == once(*parts)


@pytest.mark.night
@pytest.mark.parametrize("role", [WorkerRole, JudgeRole, ElectorRole])
async def test_an_idle_role_says_that_it_waits_for_a_broker(
    role: type[WorkerRole | JudgeRole | ElectorRole], settings: Settings, proxy: Proxy, tmp_path: Path
) -> None:
    settings = settings.model_copy(update={"elect": "longest"})
    await create(settings)
    process = role(behind(settings, proxy, tmp_path / "state"))
    with capture_logs() as logged:
        async with running(process):
            await until(partial(is_ready, process))
            assert not waited_for(logged, "a broker")
            proxy.withhold = lambda _: True
            await until(lambda: waited_for(logged, "a broker"))
            proxy.withhold = lambda _: False

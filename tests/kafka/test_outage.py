"""Roles wait for unreachable brokers, log it, and continue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from stream.roles.elector.role import ElectorRole
from stream.roles.judge.role import JudgeRole
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from tests.kafka.judge_helpers import append, decided, once, part, places, record, verdicts
from tests.kafka.proxy import FETCH, LIST_OFFSETS, Proxy
from tests.kafka.worker_helpers import create, running
from tests.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.night]


def behind(settings: Settings, proxy: Proxy, state_dir: Path) -> Settings:
    """Settings of a role with a directory of its own that sees the broker through the proxy."""
    return settings.model_copy(update={"bootstrap_servers": proxy.bootstrap_servers, "state_dir": state_dir})


def waited_for(logged: list[Any], wanted: str) -> bool:
    return any(each["event"] == "waiting" and each["wanted"] == wanted for each in logged)


async def test_judge_waits_while_the_leader_of_the_journal_is_silent(
    settings: Settings, proxy: Proxy, tmp_path: Path
) -> None:
    settings = settings.model_copy(update={"session_seconds": 1.0})
    names = await create(settings)
    parts = [part(0, 0, 3, opening=True), part(0, 3, 5), part(0, 5, 9)]
    standby = JudgeRole(behind(settings, proxy, tmp_path / "standby"))

    async def ready() -> bool:
        return (await standby.watch.health.ready())[0]

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


@pytest.mark.parametrize("role", [WorkerRole, JudgeRole, ElectorRole])
async def test_an_idle_role_says_that_it_waits_for_a_broker(
    role: type[WorkerRole | JudgeRole | ElectorRole], settings: Settings, proxy: Proxy, tmp_path: Path
) -> None:
    settings = settings.model_copy(update={"elect": "longest"})
    await create(settings)
    process = role(behind(settings, proxy, tmp_path / "state"))

    async def ready() -> bool:
        return (await process.watch.health.ready())[0]

    with capture_logs() as logged:
        async with running(process):
            await until(ready)
            assert not waited_for(logged, "a broker")
            proxy.withhold = lambda _: True
            await until(lambda: waited_for(logged, "a broker"))
            proxy.withhold = lambda _: False

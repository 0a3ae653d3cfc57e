"""A role says that no broker answers, also while it has nothing to do."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.errors import NodeNotReadyError
from structlog.testing import capture_logs

from stream.errors import BrokerError
from stream.kafka import broker_watch
from tests.waiting import until


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (BrokerError("no broker answers"), "no broker answers"),
        (NodeNotReadyError("node 1"), "NodeNotReadyError: node 1"),
        (None, "none has answered for 0.01 s"),
    ],
)
async def test_an_outage_is_told_once_and_so_is_its_end(
    error: Exception | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_watch, "ASK_SECONDS", 0.01)
    asked, is_away = 0, True

    async def ask() -> None:
        nonlocal asked
        asked += 1
        if is_away and error is None:
            await asyncio.Event().wait()
        elif is_away and error is not None:
            raise error

    with capture_logs() as logged:
        reporting = asyncio.create_task(broker_watch.report_outages(ask))
        await until(lambda: asked > 3)
        is_away = False
        await until(lambda: len(logged) > 1)
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)
    assert [(each["event"], each["wanted"]) for each in logged] == [
        ("waiting", "a broker"), ("answers_again", "a broker"),
    ]  # fmt: skip
    assert logged[0]["error"] == why

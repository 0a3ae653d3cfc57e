"""What the dashboard says of expiry and of requests to forget."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from stream.dashboard.answers import Forgetting, Window
from stream.dashboard.counting.forgotten import ForgottenPages
from stream.dashboard.counting.rows import ClusterRow
from stream.dashboard.deployment import system
from stream.dashboard.lookup.lookup import Finder
from stream.dashboard.role import _forgetting
from stream.judge.state.window import Expiry
from stream.messages.requests import ForgetRequest
from stream.messages.verdict_options import VerdictOptions
from stream.ops.health import Health
from stream.ops.metrics import JudgeMetrics
from stream.ops.server import ops_server
from stream.settings import load
from tests.genesis import JOURNAL, genesis_of


async def test_a_dashboard_asks_the_leading_judge_which_pages_were_carried() -> None:
    metrics = JudgeMetrics()
    metrics.expired.labels("carried").inc(3)
    metrics.expired.labels("gone").inc(9)
    metrics.leading.set(1)
    async with ops_server(load(ops_port=0), metrics, Health()) as url:
        _, gauges = await system._ask([("judge", url or "")])
    window = system._with_carried(Window(600), gauges)
    assert window is not None
    assert window.carried == 0.25
    assert system._with_carried(Window(600), {}) == Window(600)
    assert system._with_carried(None, gauges) is None


def finder(lifetime: int | None, state: object = None) -> Finder:
    made = Finder(
        load(), genesis_of(options=VerdictOptions(lifetime=lifetime)), lambda _: [], lambda _: ClusterRow()
    )
    if state is not None:
        following: Any = SimpleNamespace(state=state)
        made._follower = following
    return made


def test_the_window_is_that_of_the_look_ups_own_state() -> None:
    def state(expiry: Expiry) -> object:
        return SimpleNamespace(time=700_000, window=SimpleNamespace(expiry=expiry))

    assert finder(None).window is None
    assert finder(600).window == finder(600, state(Expiry(-1))).window == Window(600)
    assert finder(600, state(Expiry(50_000, 7, 30_000))).window == Window(600, 700.0, 50.0, 7, 30.0)


def test_requests_are_counted_by_whether_they_are_decided() -> None:
    requests = ForgottenPages(genesis_of())
    assert _forgetting(requests) is None
    for offset in range(3):
        requests.add(offset, 5_000 + offset, ForgetRequest(journal=JOURNAL, forget="url", digest="ab" * 16))
    assert _forgetting(requests) == Forgetting(0, 3, 5.0)
    requests.decide(2, 10)
    assert _forgetting(requests) == Forgetting(2, 1, 5.002)
    requests.decide(3, 10)
    assert _forgetting(requests) == Forgetting(3, 0)

"""The metrics documentation matches the definitions; health reports what roles told it."""

from __future__ import annotations

import asyncio
import re
import time
from math import nan
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import ClientSession
from prometheus_client.parser import text_string_to_metric_families

from docs.site.metrics_page import ROLES
from stream.dashboard.deployment import system
from stream.errors import PortTakenError
from stream.fingerprint.row import Row, Status
from stream.judge.log_time import AHEAD_MS
from stream.ops.elapsed import Elapsed
from stream.ops.health import LIVE_SECONDS, Health
from stream.ops.metrics import JudgeMetrics, WorkerMetrics
from stream.ops.server import ops_server
from stream.roles.judge.append_times import AppendTimes
from stream.roles.judge.watch import JudgeWatch
from stream.roles.worker.backlog import JournalBatch
from stream.roles.worker.watch import WorkerWatch
from stream.settings import load


def test_metrics_are_named_by_convention() -> None:
    for kind in ROLES:
        for each in kind().defined:
            assert re.fullmatch(r"neardup_[a-z]+(_[a-z]+)+", each.name)
            assert each.name.endswith("_total") == (each.kind == "counter"), each.name
            assert each.meaning.endswith("."), each.name
            assert each.name.startswith((f"neardup_{kind.role}_", "neardup_build_info"))


def test_a_worker_counts_pages_whose_quality_is_no_number() -> None:
    worker: Any = None
    watch = WorkerWatch(worker)
    rows = [Row(Status.READY, "http://a/", None, quality=each) for each in (None, 0.5, nan, nan)]
    watch.note_append(JournalBatch(rows=rows))
    assert watch.metrics.quality_ignored._value.get() == 2


def test_append_times_that_are_ahead_name_the_broker_until_they_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_700_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: now * 1_000_000)
    metrics = JudgeMetrics()
    append_times = AppendTimes(metrics.ahead)

    def told(broker: int | None, *ahead: int) -> dict[str, float]:
        decided: Any = SimpleNamespace(
            entries=[SimpleNamespace(time=now + each) for each in ahead], log_time=now
        )
        append_times.note(decided, lambda: broker)
        return {
            sample.labels["broker"]: sample.value for sample in next(iter(metrics.ahead.collect())).samples
        }

    assert told(1, -5, AHEAD_MS) == {"1": 0}
    assert told(2, -5, AHEAD_MS + 1, 0) == {"2": (AHEAD_MS + 1) / 1000}
    assert told(None, 10**9) == {"unknown": 10**6}
    assert told(1, 0) == {"1": 0}


def test_requests_to_forget_wait_from_their_append_on() -> None:
    watch = JudgeWatch()
    metrics = watch.metrics

    def told() -> list[float]:
        return [
            next(iter(gauge.collect())).samples[0].value
            for gauge in (metrics.requests_waiting, metrics.request_age)
        ]

    assert told() == [0, 0]
    watch.note_requests(3, int(1000 * (time.time() - 50)))
    waiting, age = told()
    assert (waiting, 50 <= age < 650) == (3, True)
    watch.note_requests(0, 0)
    assert told() == [0, 0]


def test_what_lasts_is_counted_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    now, holds = 100.0, False
    monkeypatch.setattr(time, "monotonic", lambda: now)
    elapsed = Elapsed(lambda: holds)
    assert elapsed() == 0
    holds = True
    assert elapsed() == 0
    now += 7
    assert elapsed() == 7
    holds = False
    assert elapsed() == 0
    now, holds = now + 1, True
    assert elapsed() == 0


async def test_a_loop_that_hangs_is_not_alive() -> None:
    now = 0.0
    health = Health(lambda: now)
    now = LIVE_SECONDS
    assert health.live() == (True, {"turned_seconds_ago": LIVE_SECONDS})
    now += 1
    assert health.live()[0] is False
    with health.excuse("opening the state"):
        now += 1000
        assert health.live() == (True, {"excused": "opening the state"})
    assert health.live() == (True, {"turned_seconds_ago": 0.0})


async def test_readiness_is_every_check_by_its_name() -> None:
    async def dies() -> None:
        raise OSError("no broker")

    health = Health()
    assert await health.ready() == (False, {})
    health.checks["assigned"] = lambda: True
    health.checks["broker"] = lambda: asyncio.sleep(0)
    assert await health.ready() == (True, {"assigned": True, "broker": True})
    health.checks["broker"] = dies
    assert await health.ready() == (False, {"assigned": True, "broker": False})


async def _seen(url: str) -> tuple[str, str]:
    (process,), _ = await system._ask([("worker", url)])
    return process.state, process.detail


async def test_a_role_serves_metrics_and_health() -> None:
    health, metrics = Health(), WorkerMetrics()
    metrics.pages.labels("ready").inc(3)
    async with ops_server(load(ops_port=0), metrics, health) as url, ClientSession(url) as client:
        async with client.get("/readyz") as answer:
            started = round(health.started, 3)
            assert answer.status == 503
            assert await answer.json() == {"ready": False, "checks": {}, "started": started}
        assert await _seen(url) == ("not ready", "it is starting")
        health.checks["assigned"] = lambda: True
        async with client.get("/readyz") as answer:
            assert (answer.status, (await answer.json())["ready"]) == (200, True)
        assert await _seen(url) == ("ready", "all checks pass")
        async with client.get("/livez") as answer:
            assert (answer.status, (await answer.json())["live"]) == (200, True)
        async with client.get("/metrics") as answer:
            families = {each.name: each for each in text_string_to_metric_families(await answer.text())}
    assert {sample.labels.get("status"): sample.value for sample in families["neardup_worker_pages"].samples}[
        "ready"
    ] == 3
    assert families["neardup_build_info"].samples[0].labels["role"] == "worker"


async def test_a_port_that_is_taken_is_named() -> None:
    async with ops_server(load(ops_port=0), WorkerMetrics(), Health()) as url:
        port = int((url or "").rsplit(":", 1)[1])
        with pytest.raises(PortTakenError, match=f"ops_port {port}: another process listens .* --ops-port"):
            async with ops_server(load(ops_port=port), JudgeMetrics(), Health()):
                pass

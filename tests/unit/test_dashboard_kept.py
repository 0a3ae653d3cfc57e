"""What the dashboard knows of kept pages, and says of expiry and of requests to forget."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from msgspec import structs

from stream.dashboard.answers import Election, Forgetting, Kept, Window
from stream.dashboard.counting.rows import ClusterRow
from stream.dashboard.deployment import system
from stream.dashboard.deployment.lag import PartitionLag, TopicLag
from stream.dashboard.lookup import kept_pages
from stream.dashboard.lookup.kept_pages import KeptPages
from stream.dashboard.lookup.lookup import Finder
from stream.judge.state.window import Expiry
from stream.kafka.broker_metadata import LogBounds
from stream.messages.best import ELECT_HEADER, BestRecord, KeptPage, encode_best
from stream.messages.verdict import PageRef
from stream.messages.verdict_options import VerdictOptions
from stream.ops.health import Health
from stream.ops.metrics import JudgeMetrics
from stream.ops.server import ops_server
from stream.settings import load
from tests.genesis import genesis_of

FIRST = PageRef("https://a.example/", "abababab.2.0")
TOLD = BestRecord(
    cluster=FIRST.id,
    best=KeptPage("https://b.example/", "abababab.7.1", 272, None, None),
    was=FIRST,
    because="joined",
    members=2,
    as_of="abababab.7.1",
    decided_at="2026-01-02T03:04:05.000Z",
)


def record(told: BestRecord, **fields: Any) -> Any:
    value = encode_best(structs.replace(told, **fields))
    headers = ((ELECT_HEADER, b"longest"),)
    return SimpleNamespace(value=value, headers=headers, topic="n.best", partition=1, offset=7)


@pytest.fixture
def kept() -> KeptPages:
    return KeptPages(load(namespace="n", elect="longest"))


def test_the_last_record_of_a_cluster_counts(kept: KeptPages) -> None:
    kept._add(record(TOLD))
    kept._add(record(TOLD, as_of="abababab.10.0", because="left", best=None, members=0))
    kept._add(record(TOLD))  # a repetition: 7.1 is before 10.0
    assert kept.of(FIRST.id, FIRST.url) == Kept(None, None, "left", 0, TOLD.decided_at)


def test_without_a_record_the_anchor_is_kept_once_all_were_read(kept: KeptPages) -> None:
    assert kept.election == Election("none")
    assert kept.of(FIRST.id, FIRST.url) is None
    kept._add(record(TOLD))
    kept._state = "following"
    assert kept.election == Election("following", "longest")
    assert kept.of("abababab.3.0", "https://c.example/") == Kept("https://c.example/", "abababab.3.0")


def test_beyond_a_limit_the_largest_clusters_are_known(
    kept: KeptPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_pages, "MOST_CLUSTERS", 10)
    kept._state = "following"
    for number in range(30):
        kept._add(record(TOLD, cluster=f"abababab.2.{number}", members=1 + number))
    known = [number for number in range(30) if kept.of(f"abababab.2.{number}", FIRST.url)]
    assert known == list(range(known[0], 30))
    assert 5 <= len(known) <= 10
    monkeypatch.setattr(kept_pages, "MOST_CHARACTERS", 100)
    kept._add(record(TOLD, members=100))
    assert list(kept._records) == [TOLD.cluster, "abababab.2.29"]
    assert kept._characters == 2 * len("https://a.example/https://b.example/")


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


@pytest.mark.parametrize(
    ("end", "lag", "said"),
    [
        (0, TopicLag(()), None),
        (3, TopicLag((PartitionLag(0, 1, 8.0),)), Forgetting(2, 1, 92.0)),
        (3, TopicLag((PartitionLag(0, 1, None),)), Forgetting(2, 1)),
        (3, TopicLag(()), Forgetting(2, 0)),
    ],
)
async def test_requests_wait_that_are_not_decided(
    monkeypatch: pytest.MonkeyPatch, end: int, lag: TopicLag, said: Forgetting | None
) -> None:
    async def measured(*asked: Any) -> TopicLag:
        assert asked[1:] == ("n.requests", bounds, {key: 2})
        return lag

    monkeypatch.setattr(system, "measure_lag", measured)
    monkeypatch.setattr(system.time, "time", lambda: 100.0)
    key, own = TopicPartition("n.requests", 0), SimpleNamespace(requested=lambda: 2)
    bounds = {key: LogBounds(0, end, end)}
    watch = system.Watch(load(namespace="n"), 1, Health(), own)  # type: ignore[arg-type]
    assert await watch._forgetting(None, bounds) == said

"""A judge that looks for what is to be forgotten stops at once, and goes on, while a topic cannot be read.

What the command refuses before it asks any broker.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, Self

import msgspec
import pytest

from stream.errors import SettingsError
from stream.kafka.broker_metadata import LogBounds
from stream.kafka.in_flight import in_thread
from stream.messages.verdict import ClusterRecord
from stream.messages.verdict_options import VerdictOptions
from stream.roles.judge import ended_clusters, forgetting
from stream.roles.judge.ended_clusters import EndedClusters
from stream.roles.judge.forgetting import ForgetRequests
from stream.settings import load
from tests.commands import neardup
from tests.genesis import genesis_of


class Away:
    """The topic `clusters`, whose broker does not answer."""

    def __init__(self, *_: Any) -> None:
        self.is_open, self.asked = False, asyncio.Event()
        self.has_more = False

    async def __aenter__(self) -> Self:
        self.is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self.is_open = False

    async def search(self, *, pauses: bool = False) -> None:
        self.asked.set()
        await asyncio.Event().wait()


class Found:
    """A search for pages, of which none are left to look at."""

    wanted = None

    def remaining(self) -> int:
        return 0

    def run(self, turn: Any) -> None:
        turn()


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Away:
    made = Away()
    monkeypatch.setattr(forgetting, "EndedClusters", lambda *_: made)
    return made


@pytest.fixture
def requests() -> ForgetRequests:
    judge: Any = SimpleNamespace(genesis=genesis_of(options=VerdictOptions(lifetime=3600)))
    watch: Any = SimpleNamespace(stage=lambda name: nullcontext())
    reader: Any = SimpleNamespace(position=0)
    publisher: Any = None
    return ForgetRequests(load(), reader, judge, publisher, watch)


async def test_a_judge_that_stops_does_not_wait_for_the_topic(topic: Away, requests: ForgetRequests) -> None:
    requests._begin(Found())  # type: ignore[arg-type]
    await topic.asked.wait()
    assert topic.is_open
    await requests.close()
    assert not topic.is_open
    assert requests._searching is not None
    assert requests._searching.cancelled()


async def test_a_judge_that_stops_waits_for_the_thread_that_searches(
    topic: Away, requests: ForgetRequests
) -> None:
    ended = list[bool]()

    def run(turn: Any) -> None:
        requests._stop.wait()
        ended.append(True)

    search: Any = SimpleNamespace(run=run)
    requests._begin(search)
    await in_thread(lambda: None)
    await requests.close()
    assert ended == [True]
    assert not topic.asked.is_set()


async def test_a_judge_goes_on_while_the_topic_cannot_be_read(
    topic: Away, requests: ForgetRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It decides nothing before it has read the topic."""
    monkeypatch.setattr(forgetting, "TOPIC_SECONDS", 0.0)
    search: Any = Found()
    requests._search, requests._ended = search, topic  # type: ignore[assignment]
    requests._searching = asyncio.create_task(asyncio.sleep(0))
    await requests._searching
    assert requests.is_due
    await requests.decide()
    assert topic.asked.is_set()
    assert requests.is_due
    await requests.close()


class Topic:
    """The topic `clusters`, a record of which is read at a time."""

    topic = "n.clusters"

    def __init__(self, urls: list[str]) -> None:
        self.position, self.records = 0, list[Any]()
        for number, url in enumerate(urls):
            value = ClusterRecord(cluster=f"c-{number}", url=url, state="superseded", by="", decided_at="")
            self.append(value.cluster, msgspec.json.encode(value))

    def append(self, cluster: str, value: bytes | None) -> None:
        offset = len(self.records)
        self.records.append(
            SimpleNamespace(topic=self.topic, partition=0, offset=offset, key=cluster.encode(), value=value)
        )

    async def settled_bounds(self) -> LogBounds:
        return LogBounds(0, len(self.records), len(self.records))

    def seek(self, offset: int) -> None:
        self.position = offset

    async def poll(self) -> list[Any]:
        self.position += 1
        return self.records[self.position - 1 : self.position]


async def test_a_bounded_number_of_clusters_is_found_before_their_tombstones_are_published(
    requests: ForgetRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_clusters, "MOST_FOUND", 10)
    monkeypatch.setattr(forgetting, "TOMBSTONES_AT_ONCE", 4)
    topic = Topic([f"http://{('kept', 'named')[number % 3 > 0]}/{number}" for number in range(100)])
    topic.append("c-1", None)
    topic.records.insert(2, topic.records.pop())  # of an earlier forgetting
    wanted: Any = SimpleNamespace(names=lambda url: url.startswith("http://named/"))
    monkeypatch.setattr(ended_clusters, "TopicReader", lambda *_: topic)
    ended, erased = EndedClusters(load(), wanted), list[str]()

    async def publish(clusters: list[str]) -> None:
        assert len(clusters) <= 4
        assert len(ended._found) <= 10
        erased.extend(clusters)
        for each in clusters:
            topic.append(each, None)

    class Ready(Found):
        def record(self) -> None:
            raise EOFError

    requests._publisher, requests._ended = SimpleNamespace(publish_tombstones=publish), ended  # type: ignore[assignment]
    requests._search = Ready()  # type: ignore[assignment]
    requests._begin(requests._search)  # type: ignore[arg-type]

    async def decide() -> None:
        while requests._searching is not None:
            await requests._searching
            await requests.decide()

    with pytest.raises(EOFError):
        await decide()
    assert erased == [f"c-{number}" for number in range(2, 100) if number % 3]
    assert len(topic.records) - topic.position < 4, "the last tombstones are not awaited"
    await requests.close()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "name URLs, --host, --domain or --file"),
        (("--status", "http://a.example/"), "--status: shows all requests"),
        (("--json", "http://a.example/"), "--json: needs --status"),
    ],
)
def test_a_command_that_names_nothing_or_too_much_is_refused(arguments: tuple[str, ...], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        neardup("forget", "--bootstrap-servers", "127.0.0.1:1", *arguments)

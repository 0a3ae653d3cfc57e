"""A judge that looks for what is to be forgotten stops at once, and goes on, while a topic cannot be read."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, Self

import pytest

from stream.kafka.in_flight import in_thread
from stream.messages.verdict_options import VerdictOptions
from stream.roles.judge import forgetting
from stream.roles.judge.forgetting import ForgetRequests
from stream.settings import load
from tests.genesis import genesis_of


class Away:
    """The topic `clusters`, whose broker does not answer."""

    def __init__(self, *_: Any) -> None:
        self.is_open, self.asked = False, asyncio.Event()

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

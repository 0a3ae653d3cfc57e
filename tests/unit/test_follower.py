"""Roles that are cancelled or stop wait for the thread that applies or searches, without a broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stream.fingerprint.scheme import Scheme
from stream.judge.batch import Entry, digest_of
from stream.judge.judge import Judge
from stream.judge.state.state import State
from stream.kafka.in_flight import in_thread
from stream.kafka.reader import JournalReader
from stream.messages.decision import encode_decisions
from stream.messages.journal import Genesis, Rows, decode_journal
from stream.roles.judge.forgetting import ForgetRequests
from stream.states.follower import JudgeFollower
from tests.genesis import genesis_of
from tests.kafka.judge_helpers import part, record
from tests.topic_in_memory import TopicInMemory
from tests.waiting import until

SCHEME = Scheme()
GENESIS = genesis_of(SCHEME)


class GatedJudge(Judge):
    """A judge whose `apply` waits in its thread before it starts."""

    def __init__(self, state: State, genesis: Genesis) -> None:
        super().__init__(state, genesis)
        self.begun, self.go_on = threading.Event(), threading.Event()

    def apply(self, *arguments: Any) -> None:
        self.begun.set()
        self.go_on.wait()
        super().apply(*arguments)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    opened = State(tmp_path, GENESIS, "here", memory=1 << 20, generation=16, cache=1 << 20)
    yield opened
    opened.close()


async def test_cancelled_follower_waits_for_the_thread_that_applies(state: State) -> None:
    """The state is closed afterwards, when no thread may use it."""
    value = record(part(0, 0, 3, opening=True))
    rows = decode_journal(value, 1)
    assert isinstance(rows, Rows)
    decided = Judge(state, GENESIS).decide([Entry(1, 0, digest_of(value), rows)]).record()
    judge = GatedJudge(state, GENESIS)
    journal = JournalReader(TopicInMemory("journal", [value], start=1), GENESIS)
    decisions = TopicInMemory("decisions", [encode_decisions(decided)])
    task = asyncio.create_task(JudgeFollower(judge, journal, decisions).follow())
    try:
        await until(judge.begun.is_set)
        task.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not task.done()
        assert state.meta.applied == 0
    finally:
        judge.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert state.meta.applied == 2


async def test_a_judge_that_stops_waits_for_the_thread_that_searches() -> None:
    watch: Any = SimpleNamespace(stage=lambda name: nullcontext())
    reader, none, ended = SimpleNamespace(position=0), SimpleNamespace(), list[bool]()
    requests = ForgetRequests(reader, none, none, watch)  # type: ignore[arg-type]

    def run(turn: Any) -> None:
        requests._stop.wait()
        ended.append(True)

    search: Any = SimpleNamespace(run=run)
    requests._begin(search)
    await in_thread(lambda: None)
    await requests.close()
    assert ended == [True]

"""What the dashboard knows of forgotten pages, by what it reads of decisions and, where these are trimmed, of
requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream.dashboard.counting import forgotten
from stream.dashboard.counting.forgotten import ForgottenPages
from stream.dashboard.counting.state import State
from stream.errors import BrokerError, TrimmedLogError
from stream.figures import Meta
from stream.fingerprint.seed import host_hasher, url_hasher
from stream.judge.forgetting import NamedHosts
from stream.kafka.broker_metadata import LogBounds
from stream.kafka.log_starts import BROKERS_APART_MS
from stream.messages.decision import (
    Forgotten,
    LedgerPart,
    NamedDigests,
    encode_decisions,
    forgetting_record,
    ledger_record,
)
from stream.messages.requests import ForgetRequest, encode_request
from stream.settings import Settings
from tests.genesis import JOURNAL, genesis_of
from tests.topic_in_memory import TopicInMemory
from tests.waiting import until

GENESIS = genesis_of()
A, B, C = (f"http://{name}.example/" for name in "abc")
FRESH = Meta(cluster="cluster", journal=JOURNAL, topic="topic")


def page(offset: int) -> str:
    return f"{GENESIS.journal[:8]}.{offset}.0"


def digest_of(url: str) -> bytes:
    return url_hasher(GENESIS.seed)(url)


def request(url: str, journal: str = GENESIS.journal) -> bytes:
    return encode_request(ForgetRequest(journal=journal, forget="url", digest=digest_of(url).hex()))


def decision(
    requests: int, start: int, *urls: str, ids: Sequence[int] = (), hosts: Sequence[str] = ()
) -> bytes:
    """A record at a journal offset with which the requests for these are decided, the last ones before an
    offset of requests."""
    about = Forgotten(
        requests=requests,
        anchors=b"",
        duplicates=b"",
        urls=b"",
        ids=np.array(ids, "<i8").tobytes(),
        pages=[],
        named=NamedDigests.of(urls=map(digest_of, urls), hosts=map(host_hasher(GENESIS.seed), hosts)),
    )
    return encode_decisions(forgetting_record(GENESIS.journal, GENESIS.options.id, start, b"", 0, about))


def ledger(start: int) -> bytes:
    return encode_decisions(
        ledger_record(GENESIS.journal, GENESIS.options.id, start, b"", 0, [], LedgerPart(0, 0))
    )


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    with closing(State.open(tmp_path, FRESH)) as opened:
        yield opened


def starts_of(pages: ForgottenPages, *urls: str) -> list[int]:
    """The journal offset before which each URL's pages are forgotten."""
    return [next(at for at in range(100) if not pages.names(url, page(at))) for url in urls]


async def read_all(pages: ForgottenPages, decisions: Any, *requests: bytes) -> None:
    """As from a topic of requests of which a poll gives one."""
    while decisions.position < decisions.stable:
        try:
            await pages.read(decisions)
        except TrimmedLogError:
            topic: Any = TopicInMemory("requests", requests, at_once=1)
            await pages.pass_over_trimmed(decisions, topic)


async def test_pages_are_forgotten_up_to_the_last_decision_that_names_them(state: State) -> None:
    pages = ForgottenPages(GENESIS, state)
    assert state.is_erased
    topic = TopicInMemory("decisions", [ledger(1), decision(2, 8, A, B)])
    await read_all(pages, topic)
    assert starts_of(pages, A, B, C) == [8, 8, 0]
    assert (state.meta.decided, state.meta.requested, state.meta.erased) == (2, 2, 0)
    assert not state.is_erased
    state.note_erased(state.erasable)
    assert state.meta.erased == 2
    await read_all(pages, TopicInMemory("decisions", [decision(3, 20, A)], start=2))
    assert starts_of(pages, A, B, C) == [20, 8, 0]
    assert (state.meta.erased, state.is_erased) == (0, False)


async def test_what_is_known_is_known_after_a_restart(tmp_path: Path) -> None:
    with closing(State.open(tmp_path, FRESH)) as state:
        await read_all(
            ForgottenPages(GENESIS, state), TopicInMemory("decisions", [decision(2, 8, A, ids=(5,))])
        )
        meta = state.meta
    with closing(State.open(tmp_path, FRESH)) as state:
        pages = ForgottenPages(GENESIS, state)
        assert starts_of(pages, A, B) == [8, 0]
        assert (pages._has(5), pages._has(6)) == (True, False)
        assert state.meta == meta


async def test_pages_of_requests_that_go_on_are_known_and_erased_with_the_last(state: State) -> None:
    """Those of very many are named by several records."""
    pages = ForgottenPages(GENESIS, state)
    await read_all(pages, TopicInMemory("decisions", [decision(0, 8, ids=(5,)), decision(0, 9, ids=(7,))]))
    assert state.is_erased
    await read_all(pages, TopicInMemory("decisions", [decision(1, 9, A, ids=(9,))], start=2))
    assert not state.is_erased
    assert [pages._has(each) for each in range(4, 10)] == [False, True] * 3


async def test_requests_that_name_nothing_are_decided(state: State) -> None:
    """All of them were refused."""
    await read_all(ForgottenPages(GENESIS, state), TopicInMemory("decisions", [decision(3, 8)]))
    assert (state.meta.requested, state.meta.erased) == (3, 3)


async def test_where_decisions_are_trimmed_older_requests_count_as_decided_by_them(state: State) -> None:
    """But not those that are known to have been decided before, younger ones by any broker's clock, and those
    of others."""
    pages = ForgottenPages(GENESIS, state)
    await read_all(pages, TopicInMemory("decisions", [decision(1, 8, A)]))
    state.note_erased(state.erasable)
    trimmed = TopicInMemory("decisions", [ledger(20)], start=7)
    trimmed.position = state.meta.decided
    trimmed.first_time = 4 - BROKERS_APART_MS
    await read_all(pages, trimmed, *map(request, (A, B)), b"?", request(C, "cd" * 16), request(C))
    assert starts_of(pages, A, B, C) == [8, 20, 0]
    assert (state.meta.decided, state.meta.requested, state.meta.erased) == (8, 2, 0)
    assert not state.is_erased


async def test_a_request_that_took_longer_than_what_was_trimmed_is_decided_by_its_own_decision(
    state: State,
) -> None:
    """It counted as decided, and pages judged since are still there: they are erased in a pass of their own,
    whether or not one is under way."""
    pages, trimmed = ForgottenPages(GENESIS, state), TopicInMemory("decisions", [ledger(20)], start=7)
    trimmed.position, trimmed.first_time = 0, 1 - BROKERS_APART_MS
    await read_all(pages, trimmed, request(A))
    under_way = state.erasable
    assert (starts_of(pages, A), state.meta.requested) == ([20], 1)
    await read_all(pages, TopicInMemory("decisions", [decision(1, 30, A)], start=8))
    assert starts_of(pages, A) == [30]
    state.note_erased(under_way)
    assert (state.is_erased, state.meta.erased) == (False, 0)
    state.note_erased(state.erasable)
    assert (state.is_erased, state.meta.erased) == (True, 1)


class Leaderless(TopicInMemory):
    """A topic whose leader is away from the first poll on."""

    async def poll(self, seconds: float = 0.2) -> list[Any]:
        self.silent = True
        return await super().poll(seconds)


@pytest.mark.parametrize("name", ["decisions", "requests"])
async def test_a_topic_that_nobody_serves_is_named(name: str, state: State) -> None:
    topics: dict[str, Any] = {
        each: (Leaderless if each == name else TopicInMemory)(each, values, start=7)
        for each, values in (("decisions", [ledger(20)]), ("requests", [request(A)]))
    }
    with pytest.raises(BrokerError, match=f"topic {name}: "):
        await ForgottenPages(GENESIS, state).pass_over_trimmed(**topics)


@asynccontextmanager
async def following(
    pages: ForgottenPages, decisions: TopicInMemory, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[None]:
    """Follow these decisions, and no requests, until all are read."""

    @asynccontextmanager
    async def opened(_: object, topic: str, position: int) -> AsyncIterator[TopicInMemory]:
        reader = decisions if topic.endswith(".decisions") else TopicInMemory(topic, [])
        reader.position = position
        yield reader

    monkeypatch.setattr(forgotten, "TopicReader", opened)
    task = asyncio.create_task(pages.follow(Settings()))
    await until(lambda: task.done() or pages._state.meta.decided == decisions.stable)
    yield
    assert not task.done(), task.exception()
    task.cancel()


async def test_decisions_that_lost_their_end_are_read_again(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = ForgottenPages(GENESIS, state)
    await read_all(pages, TopicInMemory("decisions", [decision(1, 8, A), ledger(9), ledger(10)]))
    async with following(pages, TopicInMemory("decisions", [decision(1, 8, B)]), monkeypatch):
        assert starts_of(pages, A, B) == [8, 8]


class Trimming(TopicInMemory):
    """A topic of which more is trimmed when a reader that is behind has asked where it begins."""

    is_behind = False

    async def poll(self, seconds: float = 0.2) -> list[Any]:
        self.is_behind = self.position < self._first
        return await super().poll(seconds)

    async def bounds(self) -> LogBounds:
        bounds = await super().bounds()
        if self.is_behind and bounds.start == 7:
            self.delete_before(8)
        return bounds


async def test_decisions_that_are_trimmed_again_and_again_are_passed_over(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = ForgottenPages(GENESIS, state)
    trimmed = Trimming("decisions", [ledger(20), decision(1, 30, A)], start=7)
    async with following(pages, trimmed, monkeypatch):
        assert starts_of(pages, A) == [30]


async def test_nothing_is_said_to_be_known_before_it_is(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a verdict that is read meanwhile would be counted as one without forgotten pages."""
    pages, write = ForgottenPages(GENESIS, state), state.write
    known = list[tuple[int, list[int]]]()

    def note(*args: Any, **changes: Any) -> None:
        known.append((state.meta.forgotten, starts_of(pages, A)))
        write(*args, **changes)

    monkeypatch.setattr(state, "write", note)
    assert starts_of(pages, A) == [0]
    await read_all(pages, TopicInMemory("decisions", [decision(1, 8, hosts=["a.example"])]))
    assert known == [(0, [8]), (1, [8])]


class Digests(dict[bytes, tuple[int, ...]]):
    """Digests that are named, which counts how often it is asked."""

    asked = 0

    def get(self, digest: bytes, default: tuple[int, ...] = (), /) -> tuple[int, ...]:  # type: ignore[override]
        self.asked += 1
        return super().get(digest, default)


@pytest.mark.parametrize(
    ("host", "named"),
    [
        ("example.com", True),
        ("a.b.example.com", True),
        ("a." * 120 + "example.com", True),
        ("a." * 4000 + "example.com", True),
        ("a" * 8000 + ".example.com", True),
        ("a." * 4000 + "example.org", False),
        ("a" * 8000, False),
    ],
    ids=["the domain", "a host in it", "the longest", "labels", "a long label", "another", "one label"],
)
def test_a_domain_is_found_in_the_last_characters_of_a_host(host: str, named: bool) -> None:
    """A host of 8 kB may have 4,000 labels: hashing the rest behind each would take a tenth of a second."""
    digest = host_hasher(GENESIS.seed)("example.com")
    of_domains, of_hosts = Digests({digest: (7,)}), Digests({digest: (8,)})
    names = NamedHosts(GENESIS, of_hosts, of_domains)
    of_host = (8,) if host == "example.com" else ()
    assert names.of_url(f"http://{host}/") == (*of_host, *([7] * named))
    assert of_domains.asked <= 127
    nothing = NamedHosts(GENESIS, of_hosts, Digests())
    asked = of_hosts.asked
    assert nothing.of_url(f"http://{host}/") == of_host
    assert of_hosts.asked <= asked + 1


async def test_hosts_are_asked_for_only_if_some_are_named(state: State) -> None:
    pages = ForgottenPages(GENESIS, state)
    assert not pages._hosts
    await read_all(pages, TopicInMemory("decisions", [decision(1, 8, A)]))
    assert not pages._hosts
    await read_all(pages, TopicInMemory("decisions", [decision(2, 9, hosts=["b.example"])], start=1))
    assert pages._hosts
    assert starts_of(pages, A, B, C) == [8, 9, 0]

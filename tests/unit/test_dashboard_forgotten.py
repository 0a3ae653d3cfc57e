"""What the dashboard knows of forgotten pages, by what it reads of requests and decisions."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from stream.dashboard.counting import forgotten, page_ids
from stream.dashboard.counting.forgotten import ForgottenPages, _Decided
from stream.dashboard.counting.page_ids import PageIds
from stream.errors import BrokerError, TrimmedLogError
from stream.fingerprint.seed import url_hasher
from stream.kafka.outage import patience
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
from tests.genesis import genesis_of
from tests.topic_in_memory import TopicInMemory

GENESIS = genesis_of()
A, B = "http://a.example/", "http://b.example/"
BEFORE, AFTER = (f"{GENESIS.journal[:8]}.{offset}.0" for offset in (5, 12))


def request_of(url: str) -> ForgetRequest:
    digest = url_hasher(GENESIS.seed)(url).hex()
    return ForgetRequest(journal=GENESIS.journal, forget="url", digest=digest)


def decision(requests: int, start: int) -> bytes:
    """A record by which the requests before an offset are decided at a journal offset."""
    about = Forgotten(
        requests=requests, anchors=b"", duplicates=b"", urls=b"", ids=b"", pages=[], named=NamedDigests()
    )
    return encode_decisions(forgetting_record(GENESIS.journal, GENESIS.options.id, start, b"", 0, about))


async def test_a_decision_may_be_about_requests_that_came_after_they_were_read() -> None:
    values = [encode_request(request_of(A))]
    requests, pages = TopicInMemory("requests", values), ForgottenPages(GENESIS)
    await pages._read_requests(requests)
    pages._is_trimmed = False
    values.append(encode_request(request_of(B)))
    await pages._read_decisions(TopicInMemory("decisions", [decision(2, 8)]), requests)
    assert pages.waiting == (0, None)
    assert [pages.names(url, page) for url in (A, B) for page in (BEFORE, AFTER)] == [True, False] * 2


async def test_a_decision_that_is_written_while_it_is_looked_for_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = list[bytes]()
    pages, decisions = ForgottenPages(GENESIS), TopicInMemory("decisions", values)

    async def none_then_one(*_: object) -> None:
        values.append(decision(1, 8))

    monkeypatch.setattr(forgotten, "first_since", none_then_one)
    monkeypatch.setattr(forgotten.broker_metadata, "connect", lambda _: nullcontext())
    pages.add(0, 0, request_of(A))
    await pages._seek(Settings(), decisions, 0)
    await pages._read_decisions(decisions, TopicInMemory("requests", [], 1))
    assert pages.decided == [(1, 8)]


@pytest.mark.parametrize("knows", [True, False])
async def test_without_ids_a_decision_that_is_gone_is_where_it_was_known(knows: bool) -> None:
    pages, requests = ForgottenPages(GENESIS, [(1, 8)] if knows else []), TopicInMemory("requests", [], 1)
    pages.add(0, -1, request_of(A))
    pages._position, pages._is_trimmed = 1, True
    record = ledger_record(GENESIS.journal, GENESIS.options.id, 20, b"", 0, [], LedgerPart(0, 0))
    decisions = TopicInMemory("decisions", [encode_decisions(record)])
    for _ in range(2):
        await pages._read_decisions(decisions, requests)
    assert pages.decided == [(1, 8 if knows else 20)]
    assert [pages.names(A, page) for page in (BEFORE, AFTER)] == [True, not knows]


async def test_without_ids_decisions_that_were_known_are_read_again() -> None:
    pages, requests = (
        ForgottenPages(GENESIS, [(1, 8), (2, 9)]),
        TopicInMemory("requests", [encode_request(request_of(url)) for url in (A, B)]),
    )
    await pages._read_requests(requests)
    assert pages.decided == []
    pages._is_trimmed = False
    await pages._read_decisions(TopicInMemory("decisions", [decision(1, 8), decision(2, 9)]), requests)
    assert pages.decided == [(1, 8), (2, 9)]
    assert pages.waiting == (0, None)


class Restless(TopicInMemory):
    """A topic of which some polls fail first, and then a reader in a new place reads."""

    failures: Sequence[Exception] = ()

    async def __aenter__(self) -> Restless:
        self.position = 0
        return self

    async def __aexit__(self, *exception: object) -> None:
        pass

    async def poll(self, seconds: float = 0.2) -> list[Any]:
        if self.failures:
            first, *self.failures = self.failures
            raise first
        return await super().poll(seconds)


async def test_requests_are_read_to_their_end_though_that_fails_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = Restless("requests", [encode_request(request_of(A))])
    topic.failures = [KafkaError("leader moved"), TrimmedLogError("trimmed meanwhile")]
    monkeypatch.setattr(forgotten, "TopicReader", lambda *_: topic)
    monkeypatch.setattr(forgotten, "PAUSE_SECONDS", 0.0)
    pages = ForgottenPages(GENESIS)
    await pages.catch_up(Settings())
    assert pages.waiting[0] == 1
    topic.failures = [TopicAuthorizationFailedError("requests")]
    with pytest.raises(TopicAuthorizationFailedError):
        await ForgottenPages(GENESIS).catch_up(Settings())


async def test_requests_that_nobody_serves_are_waited_for_by_name() -> None:
    class Leaderless(TopicInMemory):
        async def poll(self, seconds: float = 0.2) -> list[Any]:
            self.silent = True
            return await super().poll(seconds)

    with patience(0), pytest.raises(BrokerError, match="for topic requests: "):
        await ForgottenPages(GENESIS)._read_to_end(Leaderless("requests", [b""]))


def test_what_is_decided_while_a_thread_looks_up_is_known_after_that(monkeypatch: pytest.MonkeyPatch) -> None:
    pages, ask = ForgottenPages(GENESIS), _Decided.get
    pages.add(0, 0, request_of(A))
    deciding = threading.Thread(target=pages.decide, args=(1, 8))

    def ask_slowly(decided: _Decided, digest: bytes, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        start = ask(decided, digest, default)
        if deciding.ident is None:
            deciding.start()
            deciding.join(0.2)
        return start

    monkeypatch.setattr(_Decided, "get", ask_slowly)
    assert not pages.names(A, BEFORE)
    deciding.join()
    assert pages.names(A, BEFORE)


def test_few_are_sorted_in_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (forgotten, page_ids):
        monkeypatch.setattr(module, "LEAST_JOINED", 4)
    rng = random.Random(1)
    ids, seen = PageIds(), set[int]()
    decided, starts = _Decided(), dict[bytes, int]()
    for start in range(1, 60):
        some = [rng.randrange(200) for _ in range(rng.randrange(4))]
        ids.add(np.array(some, np.int64))
        seen.update(some)
        digests = [each.to_bytes(16, "big") for each in some]
        decided.add(digests, start)
        starts |= dict.fromkeys(digests, start)
        assert bool(decided) == bool(starts)
        for each in range(200):
            digest = each.to_bytes(16, "big")
            assert (each in ids, decided.get(digest, (0,))) == (each in seen, (starts.get(digest, 0),))
    assert len(ids) == len(seen)

"""What the load says of its pages is what their topic says, whatever brokers acknowledge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from tests.chaos.load import Load
from tests.waiting import until


@dataclass
class Message:
    """A record that was read."""

    at: int
    sent: list[tuple[str, bytes]]

    def error(self) -> None: ...
    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def headers(self) -> list[tuple[str, bytes]]:
        return self.sent


@dataclass
class Topic:
    """One partition, its producer and its consumer. Each third page is stored twice, as by a producer that
    began a new epoch."""

    error: str | None = None
    records: list[list[tuple[str, bytes]]] = field(default_factory=list)
    undelivered: list[Callable[[Any, Any], None]] = field(default_factory=list)
    next: int = 0

    def produce(self, topic: str, value: bytes, headers: dict[str, str], on_delivery: Any) -> None:
        record = [(name, each.encode()) for name, each in headers.items()]
        self.records += [record] * (2 if len(self.undelivered) % 3 == 0 else 1)
        self.undelivered.append(on_delivery)

    def poll(self, seconds: float) -> None:
        while self.undelivered:
            self.undelivered.pop()(self.error, None)

    flush = poll

    def consume(self, count: int, seconds: float) -> list[Message]:
        first, self.next = self.next, len(self.records)
        return [Message(at, self.records[at]) for at in range(first, self.next)]

    def close(self) -> None: ...


def load_of(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.setattr(Load, "_producer", lambda load: topic)
    monkeypatch.setattr(Load, "_consumer", lambda load: topic)
    return Load("", "pages", 1, 1000, "seed")


async def test_a_page_that_is_stored_twice_has_two_places(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic()
    load = load_of(topic, monkeypatch)
    load.start("id")
    await until(lambda: len(topic.records) > 20)
    load.stop()
    stored = list(load.given.stored_pages())
    assert [place for place, _ in stored] == [("id", 0, offset) for offset in range(len(topic.records))]
    pages = [page for _, page in stored]
    assert any(one is other for one, other in pairwise(pages))
    assert load.given.ends("id") == {0: len(topic.records)}


async def test_a_page_that_is_not_sent_ends_the_load_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    load = load_of(Topic(error="too large"), monkeypatch)
    load.start("id")
    with pytest.raises(AssertionError, match="the load failed: page 0 was not sent: too large"):
        load.pause()

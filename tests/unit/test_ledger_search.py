"""Ledger records are found by offset, and backwards."""

from __future__ import annotations

import asyncio
import random
from unittest.mock import AsyncMock

import msgspec
import pytest

from stream.errors import BrokerError
from stream.kafka import ledger_search, outage
from stream.kafka.ledger_search import FIRST_WINDOW, LedgerRecord, last_ledger, ledger_at
from stream.messages.decision import LedgerPart, SourceProgress, encode_decisions, ledger_record
from tests.topic_in_memory import CountingTopic

JOURNAL = "cd" * 16
SOURCE = SourceProgress("a-cluster", "pages", "ab" * 16, 0, 1, 0)
START = 100


def ledger(end: int, first: int = 0) -> bytes:
    """A ledger record, or a later part of one."""
    part = LedgerPart(first, first + 1)
    return encode_decisions(ledger_record(JOURNAL, "o", end, b"", 0, [SOURCE], part))


def decision(end: int) -> bytes:
    """One about a journal record."""
    empty = ledger_record(JOURNAL, "o", end, b"", 0, [], LedgerPart(0, 0))
    return encode_decisions(msgspec.structs.replace(empty, start=end - 1, ledger=None))


def topic(*places: int, count: int, parts: tuple[int, ...] = (), at_once: int = 16) -> CountingTopic:
    """`count` decisions, with ledger records at these places, and later parts of some."""
    values = [decision(place + 1) for place in range(count)]
    for place in places:
        values[place] = ledger(place)
    for place in parts:
        values[place] = ledger(place, 1)
    return CountingTopic("decisions", values, START, at_once)


async def test_a_ledger_record_is_found_at_its_offset_alone() -> None:
    decisions = topic(5, count=20, parts=(6,))
    assert await ledger_at(decisions, START + 5) == LedgerRecord(START + 5, 5, JOURNAL)
    for place in (4, 6, 7):
        assert await ledger_at(decisions, START + place) is None


async def test_a_leader_that_is_away_is_waited_for_with_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """And named, whether it answers nothing or delivers nothing."""
    monkeypatch.setattr(outage, "PAUSE_SECONDS", 0.01)
    decisions = topic(5, count=20)
    decisions.silent = True
    why = r"waited 0\.05 s for topic decisions: .*leader does not answer"
    with pytest.raises(BrokerError, match=why), outage.patience(0.05):
        await ledger_at(decisions, START + 5)
    waiting = asyncio.create_task(ledger_at(decisions, START + 5))
    await asyncio.sleep(0.1)
    decisions.silent = False
    assert await waiting == LedgerRecord(START + 5, 5, JOURNAL)  # without a limit
    monkeypatch.setattr(ledger_search, "ASK_SECONDS", 0.01)
    monkeypatch.setattr(decisions, "poll", AsyncMock(return_value=[]))
    why = rf"waited 0\.05 s for records of topic decisions: .*does not deliver offset {START + 5}"
    with pytest.raises(BrokerError, match=why), outage.patience(0.05):
        await ledger_at(decisions, START + 5)


@pytest.mark.parametrize("seed", range(20))
async def test_the_last_one_before_an_offset_is_found(seed: int) -> None:
    rng = random.Random(seed)
    count = 40 * FIRST_WINDOW
    places = sorted(rng.sample(range(count - 1), rng.choice((0, 1, 5, 40))))
    parts = tuple(place + 1 for place in places if place + 1 not in places and rng.random() < 0.5)
    decisions = topic(*places, count=count, parts=parts, at_once=rng.choice((1, 7, 16)))
    for _ in range(10):
        start, end = sorted(rng.randint(0, count) for _ in range(2))
        expected = max((place for place in places if start <= place < end), default=None)
        answer = await last_ledger(decisions, START + start, START + end)
        assert (answer and answer.offset - START) == expected


async def test_no_more_is_read_than_three_times_what_is_needed() -> None:
    count = 64 * FIRST_WINDOW
    decisions = topic(10 * FIRST_WINDOW, count=count)
    await last_ledger(decisions, START, START + count)
    assert decisions.read <= 3 * 54 * FIRST_WINDOW

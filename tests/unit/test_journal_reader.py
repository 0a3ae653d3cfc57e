"""Readers of a journal wait for a silent leader, refuse one that ends too early, and read so far ahead."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from stream.errors import BrokerError, SecurityError, StateError
from stream.fingerprint.row import Row, Status
from stream.fingerprint.scheme import Scheme
from stream.judge.batch import BATCH_BYTES
from stream.kafka import outage as outages
from stream.kafka import reader as reader_module
from stream.kafka.reader import JournalReader
from stream.messages.journal import Rows, SourceRange
from tests.genesis import genesis_of
from tests.kafka.judge_helpers import part, record
from tests.long_urls import records_of_long_urls
from tests.topic_in_memory import TopicInMemory
from tests.waiting import until

SCHEME = Scheme()
GENESIS = genesis_of(SCHEME)
FIRST = 2
VALUES = [record(part(0, 0, 1, opening=True)), record(part(0, 1, 2))]
END = FIRST + len(VALUES)
FETCHED = 50
"""Rows a fetch brings, in records of one."""
FETCHES = 20


def one_row(offset: int) -> bytes:
    row = Row(Status.REJECTED, "http://a/", None)
    source = SourceRange("here", "pages", "0" * 32, 0, offset, offset + 1, 1)
    return Rows.of(GENESIS.scheme, [source], [row], [offset], [None]).encode()


MANY = [one_row(offset) for offset in range(FETCHES * FETCHED)]


async def test_journal_whose_leader_is_silent_is_waited_for() -> None:
    topic = TopicInMemory("journal", VALUES, FIRST)
    topic.silent = True
    turns = 0

    def on_iteration() -> None:
        nonlocal turns
        turns += 1

    with capture_logs() as logged:
        async with JournalReader(topic, GENESIS) as reader:
            reading = asyncio.create_task(reader.read_up_to(END, on_iteration, short_seconds=0))
            await until(lambda: turns > 100)
            assert not reading.done()
            assert reader.is_unreachable
            topic.silent = False
            assert [each.offset for each in await reading] == [FIRST, FIRST + 1]
            assert not reader.is_unreachable
    assert [each["event"] for each in logged] == ["waiting", "answers_again"]


async def test_journal_that_answers_and_ends_too_early_is_refused() -> None:
    async with JournalReader(TopicInMemory("journal", VALUES, FIRST), GENESIS) as reader:
        with pytest.raises(StateError, match=f"decisions end at {END + 1}, but the log ends at {END}"):
            await reader.read_up_to(END + 1, short_seconds=0)


async def test_journal_that_is_short_only_while_its_leader_is_new_is_read() -> None:
    values = VALUES[:1]
    async with JournalReader(TopicInMemory("journal", values, FIRST), GENESIS) as reader:
        turns = 0

        def on_iteration() -> None:
            nonlocal turns
            turns += 1
            if turns == 50:
                values.append(VALUES[1])

        assert len(await reader.read_up_to(END, on_iteration)) == 2


async def test_offset_inside_the_journal_where_no_record_stands_is_refused() -> None:
    """Later records exist, so it is refused without waiting."""

    class Holed(TopicInMemory):
        async def poll(self, seconds: float = 0.2) -> list[Any]:
            return [each for each in await super().poll(seconds) if each.offset != END - 1]

    async with JournalReader(Holed("journal", VALUES, FIRST), GENESIS) as reader:
        with pytest.raises(StateError, match=f"decisions end at {END}, but there is no record at {END - 1}"):
            await reader.read_up_to(END)


async def test_question_is_asked_until_it_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "PAUSE_SECONDS", 0)
    errors: list[BrokerError] = [BrokerError("nobody there")] * 30

    async def ask() -> str:
        if errors:
            raise errors.pop()
        return "it"

    with capture_logs() as logged:
        assert await outages.retry_until_answered("a broker", ask) == "it"
        assert [(each["event"], each["wanted"]) for each in logged] == [
            ("waiting", "a broker"),
            ("answers_again", "a broker"),
        ]
        errors.append(SecurityError("sasl_password: refused"))
        with pytest.raises(SecurityError):
            await outages.retry_until_answered("a broker", ask)


def test_absence_is_told_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(outages.time, "monotonic", lambda: now)
    outage = outages.Outage("a broker")
    with capture_logs() as logged:
        for second in range(3600):
            now = float(second)
            outage.note("nobody there")
    assert [each["away_seconds"] for each in logged] == list(range(0, 3600, 60))


async def test_fetches_larger_than_a_batch_do_not_pile_up() -> None:
    taken: list[int] = []
    async with JournalReader(TopicInMemory("journal", MANY, FIRST, FETCHED), GENESIS) as reader:
        while len(taken) < len(MANY):
            taken += [each.offset for each in await reader.next_rows(5)]
            for _ in range(3):
                await asyncio.sleep(0)  # as a judge that waits for its transaction
            assert reader.waiting_share(5) <= (FETCHED + 5) / 5
    assert taken == list(range(FIRST, FIRST + len(MANY)))


async def test_what_is_given_back_comes_next() -> None:
    taken: list[int] = []
    async with JournalReader(TopicInMemory("journal", MANY, FIRST, FETCHED), GENESIS) as reader:
        while len(taken) < len(MANY):
            found = await reader.next_rows(5)
            waiting = reader.waiting_share(1)
            reader.give_back(found[2:])
            assert reader.waiting_share(1) == waiting + len(found[2:])
            taken += [each.offset for each in found[:2]]
    assert taken == list(range(FIRST, FIRST + len(MANY)))


async def test_rule_9_batches_of_long_urls_are_bounded_in_bytes() -> None:
    """The rows of a full batch of such pages would be 1 GB, and seven times as much while they are judged."""
    values = [each.encode() for each in records_of_long_urls(GENESIS.scheme, 2400)]
    largest, read = max(map(len, values)), 16
    assert sum(map(len, values)) > 2 * BATCH_BYTES
    batches: list[list[int]] = []
    async with JournalReader(TopicInMemory("journal", values, FIRST, read), GENESIS) as reader:
        while sum(map(len, batches)) < len(values):
            entries = await reader.next_rows(32_768)
            assert sum(entry.rows.nbytes for entry in entries) <= BATCH_BYTES
            batches.append([entry.offset for entry in entries])
            for _ in range(100):
                await asyncio.sleep(0)  # as a judge that waits for its transaction
            assert reader.waiting_share(32_768) * BATCH_BYTES <= BATCH_BYTES + read * largest
    assert [each for batch in batches for each in batch] == list(range(FIRST, FIRST + len(values)))
    assert len(batches) < 6


async def test_record_larger_than_a_batch_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "BATCH_BYTES", 1)
    async with JournalReader(TopicInMemory("journal", MANY[:3], FIRST), GENESIS) as reader:
        assert [len(await reader.next_rows(5)) for _ in range(3)] == [1, 1, 1]

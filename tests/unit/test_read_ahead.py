"""The judge reads ahead of its current batch, but only by a bounded number of rows and bytes."""

from __future__ import annotations

import asyncio

import pytest

from stream.fingerprint.row import Row, Status
from stream.judge.batch import BATCH_BYTES
from stream.kafka import reader as reader_module
from stream.kafka.reader import JournalReader
from stream.messages.journal import Rows, SourceRange
from tests.genesis import genesis_of
from tests.long_urls import records_of_long_urls
from tests.topic_in_memory import TopicInMemory

FETCHED = 50
"""Rows a fetch brings, in records of one."""
FETCHES = 20
FIRST = 1
"""The journal's first offset after the genesis."""
GENESIS = genesis_of()


def record(offset: int) -> bytes:
    row = Row(Status.REJECTED, "http://a/", None)
    source = SourceRange("here", "pages", "0" * 32, 0, offset, offset + 1, 1)
    return Rows.of(GENESIS.scheme, [source], [row], [offset], [None]).encode()


VALUES = [record(offset) for offset in range(FETCHES * FETCHED)]


async def test_fetches_larger_than_a_batch_do_not_pile_up() -> None:
    taken: list[int] = []
    async with JournalReader(TopicInMemory("journal", VALUES, FIRST, FETCHED), GENESIS) as reader:
        while len(taken) < len(VALUES):
            taken += [each.offset for each in await reader.next_rows(5)]
            for _ in range(3):
                await asyncio.sleep(0)  # as a judge that waits for its transaction
            assert reader.waiting_share(5) <= (FETCHED + 5) / 5
    assert taken == list(range(FIRST, FIRST + len(VALUES)))


async def test_what_is_given_back_comes_next() -> None:
    taken: list[int] = []
    async with JournalReader(TopicInMemory("journal", VALUES, FIRST, FETCHED), GENESIS) as reader:
        while len(taken) < len(VALUES):
            found = await reader.next_rows(5)
            waiting = reader.waiting_share(1)
            reader.give_back(found[2:])
            assert reader.waiting_share(1) == waiting + len(found[2:])
            taken += [each.offset for each in found[:2]]
    assert taken == list(range(FIRST, FIRST + len(VALUES)))


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
    async with JournalReader(TopicInMemory("journal", VALUES[:3], FIRST), GENESIS) as reader:
        assert [len(await reader.next_rows(5)) for _ in range(3)] == [1, 1, 1]

"""The judge reads ahead of its current batch, but only by a bounded number of rows."""

from __future__ import annotations

import asyncio

from stream.fingerprint.row import Row, Status
from stream.kafka.reader import JournalReader
from stream.messages.journal import Rows, SourceRange
from tests.genesis import genesis_of
from tests.topic_in_memory import TopicInMemory

FETCHED = 50
"""Rows a fetch brings, in records of one."""
FETCHES = 20
FIRST = 1
"""The journal's first offset after the genesis."""
GENESIS = genesis_of()


def record(offset: int) -> bytes:
    row = Row(Status.REJECTED, "http://a/", None, None)
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
            assert reader.rows_waiting <= FETCHED + 5
    assert taken == list(range(FIRST, FIRST + len(VALUES)))


async def test_what_is_given_back_comes_next() -> None:
    taken: list[int] = []
    async with JournalReader(TopicInMemory("journal", VALUES, FIRST, FETCHED), GENESIS) as reader:
        while len(taken) < len(VALUES):
            found = await reader.next_rows(5)
            waiting = reader.rows_waiting
            reader.give_back(found[2:])
            assert reader.rows_waiting == waiting + len(found[2:])
            taken += [each.offset for each in found[:2]]
    assert taken == list(range(FIRST, FIRST + len(VALUES)))

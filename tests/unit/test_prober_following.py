"""A prober that awaits no decision reads several at once, and one that does reads each as it comes."""

from __future__ import annotations

import asyncio

import pytest

from stream.fingerprint.scheme import Scheme
from stream.kafka.reader import JournalReader
from stream.messages.decision import LedgerPart, encode_decisions, ledger_record
from stream.messages.verdict_options import VerdictOptions
from stream.roles.prober import following as following_module
from stream.roles.prober.following import Following
from tests.genesis import genesis_of
from tests.topic_in_memory import CountingTopic, TopicInMemory

GENESIS = genesis_of(Scheme(), VerdictOptions())
RECORDS = 20


async def test_decisions_that_are_not_awaited_are_not_asked_for_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following_module, "PAUSE_SECONDS", 3600.0)
    record = ledger_record(GENESIS.journal, GENESIS.options.id, 1, b"", 0, [], LedgerPart(0, 0))
    values = [encode_decisions(record)] * RECORDS
    decisions = CountingTopic("decisions", values, at_once=1)
    following = Following(JournalReader(TopicInMemory("journal", []), GENESIS), decisions, GENESIS, 1)
    awaited = False
    reading = asyncio.create_task(following.follow_decisions(lambda: awaited))

    async def go_on() -> None:
        following.note_room()
        for _ in range(20 * RECORDS):
            await asyncio.sleep(0)

    await go_on()
    assert decisions.read == 1
    await go_on()
    assert decisions.read == 1
    awaited = True
    await go_on()
    assert decisions.read == RECORDS
    assert len(following.take_decided()) == RECORDS
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)

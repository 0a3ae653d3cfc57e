"""A judge that needs answers of probers looks at each as soon as it comes, and asks no broker for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stream.errors import RecordError
from stream.fingerprint.scheme import Scheme
from stream.judge.batch import Entry
from stream.judge.segments.answer import Answer, BucketCounts, ListedPairs, Run, Segment
from stream.judge.segments.answer_records import DIGEST_BYTES, SentAnswer, encode_answer
from stream.kafka.in_flight import TransactionInFlight
from stream.messages.verdict_options import VerdictOptions
from stream.roles.judge import probing as probing_module
from stream.roles.judge.probing import Probing
from stream.roles.judge.role import JudgeRole
from stream.roles.judge.watch import JudgeWatch
from stream.settings import load
from tests.genesis import genesis_of

GENESIS = genesis_of(Scheme(), VerdictOptions())
PATIENCE = 60.0
"""Seconds after which something that never comes has not come."""


class Journal:
    """The part of a journal's reader that tells where the journal ends."""

    topic = "journal"

    def __init__(self, fetched: int, end: int) -> None:
        """`fetched` is the end as of the last fetch, and `end` that which a broker tells."""
        self.end, self._end, self.asked = fetched, end, 0

    async def bounds(self) -> tuple[int, int]:
        self.asked += 1
        return 0, self._end


class Segments:
    """Segments of which records are answered about up to the end of the last answer."""

    def __init__(self) -> None:
        self.until = 0

    def add(self, sent: SentAnswer, name: str) -> bool:
        self.until = sent.answer.run.end
        return True

    def meet(self, entries: list[Entry]) -> list[RecordError]:
        return []

    def answered_until(self, offset: int, end: int) -> int:
        return max(offset, self.until)

    def awaited(self, offset: int) -> None: ...


class Judging:
    """A judge's probing, with answers that are sent by hand."""

    def __init__(self, fetched: int, end: int) -> None:
        self.journal = Journal(fetched, end)
        self.watch = JudgeWatch()
        self.probing = Probing(Segments(), self.journal, self.watch)  # type: ignore[arg-type]
        self._sent = asyncio.Queue[bytes | None]()
        self._offset = 0

    async def records(self) -> AsyncIterator[Any]:
        while (value := await self._sent.get()) is not None:
            self._offset += 1
            yield SimpleNamespace(topic="candidates", partition=0, offset=self._offset, value=value)

    async def answer(self, *runs: Run) -> None:
        """Let answers about runs be read, one after the other."""
        for run in runs:
            self._sent.put_nowait(answer_about(run))
        self._sent.put_nowait(None)
        await self.probing._read_answers(self.records())  # type: ignore[arg-type]

    def answered(self, offset: int) -> list[int]:
        """Look which records from this one on can be decided."""
        entries = [Entry(each, 0, b"", None) for each in range(offset, 100)]  # type: ignore[arg-type]
        return [each.offset for each in self.probing.split(entries)[0]]


def answer_about(run: Run) -> bytes:
    """An answer that lists nothing."""
    none, small = np.zeros(0, np.int64), np.zeros(0, np.uint8)
    pairs, counts = ListedPairs(none, none, small, small, none, none > 0), BucketCounts(none, none, none)
    answer = Answer(Segment(0, 1000), run, 5, 5, pairs, none, counts)
    return encode_answer(
        SentAnswer(answer, GENESIS.journal, GENESIS.scheme_id, "", "host", bytes(DIGEST_BYTES))
    )


async def test_answers_about_records_that_were_fetched_ask_no_broker() -> None:
    judging = Judging(fetched=20, end=20)
    await judging.answer(*(Run(each, each + 1) for each in range(20)))
    assert judging.journal.asked == 0
    assert judging.answered(19) == [19]


async def test_answers_about_records_beyond_the_last_fetch_ask_once_for_all() -> None:
    judging = Judging(fetched=10, end=20)
    await judging.answer(*(Run(each, each + 1) for each in range(20)))
    assert judging.journal.asked == 1
    assert judging.answered(19) == [19]


async def test_answers_beyond_the_journal_are_refused() -> None:
    judging = Judging(fetched=20, end=20)
    await judging.answer(Run(20, 21))
    assert judging.answered(20) == []


async def test_an_answer_that_came_since_it_was_looked_for_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its record is decided at once, and not when the next answer comes."""
    monkeypatch.setattr(probing_module, "WAIT_SECONDS", 10 * PATIENCE)
    judging = Judging(fetched=20, end=20)
    assert judging.answered(10) == []
    await judging.answer(Run(10, 11))
    async with asyncio.timeout(PATIENCE):
        await judging.probing.wait(10)
    assert judging.answered(10) == [10]


async def test_a_wait_ends_with_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing_module, "WAIT_SECONDS", 10 * PATIENCE)
    judging = Judging(fetched=20, end=20)
    await judging.answer(Run(5, 6))
    assert judging.answered(10) == []
    waiting = asyncio.create_task(judging.probing.wait(10))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    await judging.answer(Run(10, 11))
    async with asyncio.timeout(PATIENCE):
        await waiting


async def test_answers_are_looked_at_again_when_a_transaction_ends(tmp_path: Path) -> None:
    """Some are as of its decision. So nothing is waited for before."""
    judge, waited = JudgeRole(load(state_dir=tmp_path)), list[int]()

    class Waiting:
        async def wait(self, offset: int) -> None:
            waited.append(offset)

    judge._probing = Waiting()  # type: ignore[assignment]
    async with TransactionInFlight() as transaction:
        transaction.begin(asyncio.sleep(0))
        await judge._await(7, transaction)
        assert not transaction.is_in_flight
        assert waited == []
        await judge._await(7, transaction)
    assert waited == [7]

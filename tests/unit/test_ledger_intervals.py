"""When a leading judge publishes a ledger record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest

from stream.judge.judge import Judge
from stream.messages.decision import Decisions
from stream.messages.verdict_options import VerdictOptions
from stream.roles.judge.ledger_records import LedgerRecords
from stream.roles.judge.transaction import VerdictPublisher
from stream.roles.judge.watch import JudgeWatch
from tests.judged_crawls import crawl, entries_of, open_state

ENTRIES = entries_of(crawl(1, 60, dense=False), 1)


class Leader:
    """A judge that leads, of which only ledger records are published."""

    def __init__(self, judge: Judge, seconds: float) -> None:
        self.judge, self.published, self._end = judge, list[Decisions](), judge.state.meta.decided
        self.ledger = LedgerRecords(seconds, judge, cast(VerdictPublisher, self), JudgeWatch())

    async def publish_ledger(self, records: Sequence[Decisions]) -> list[int]:
        self.published += records
        self._end += 1 + len(records)  # behind the marker of the transaction before
        return list(range(self._end - len(records), self._end))

    def decide(self) -> None:
        part = [next(each for each in ENTRIES if each.offset >= self.judge.state.meta.applied)]
        self._end += 2
        self.judge.apply(part, self.judge.decide(part).record(), self._end)

    async def attend(self, request: str | None = None) -> int:
        """Publish what is due, and return how many records were."""
        before = len(self.published)
        if self.ledger.is_due(request):
            await self.ledger.publish(request)
        return len(self.published) - before


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[Judge]:
    state, genesis = open_state(tmp_path / "state", VerdictOptions(), memory=1 << 20, generation=64)
    yield Judge(state, genesis)
    state.close()


async def test_a_leader_begins_with_one_unless_nothing_was_decided(judge: Judge) -> None:
    leader = Leader(judge, 3600)
    assert await leader.attend() == 0, "there is nothing to say"
    leader.decide()
    assert await leader.attend() == 1
    assert await Leader(judge, 3600).attend() == 0, "the last record says all"
    leader.decide()
    assert await Leader(judge, 3600).attend() == 1


@pytest.mark.parametrize(("seconds", "count"), [(0.0, 1), (3600.0, 0)])
async def test_one_is_due_after_an_interval_in_which_something_was_decided(
    judge: Judge, seconds: float, count: int
) -> None:
    leader = Leader(judge, seconds)
    leader.decide()
    await leader.attend()
    assert await leader.attend() == 0
    leader.decide()
    assert await leader.attend() == count


async def test_one_is_due_once_for_each_request(judge: Judge) -> None:
    leader = Leader(judge, 3600)
    leader.decide()
    assert await leader.attend("first") == 1
    leader.decide()
    assert await leader.attend("first") == 0, "its upload is under way"
    assert await leader.attend("second") == 1
    assert await leader.attend("third") == 0, "nothing was decided"

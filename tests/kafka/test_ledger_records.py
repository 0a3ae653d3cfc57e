"""Ledger records on the topic: when a leader publishes them, and who refuses them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from stream.messages.decision import Decisions, LedgerPart, encode_decisions
from stream.roles.auditor.recompute import recompute
from stream.roles.judge.role import JudgeRole
from stream.settings import Settings
from tests.kafka.judge_helpers import append, decided, ledgers, part, record, refusal_of
from tests.kafka.judged_rounds import directory, follow
from tests.kafka.worker_helpers import create, running
from tests.waiting import until_answer

pytestmark = pytest.mark.broker


async def judge_more(settings: Settings, partition: int) -> None:
    await decided(settings, await append(settings, record(part(partition, 0, 3, opening=True))))


async def published(settings: Settings, count: int) -> dict[int, Decisions]:
    """Wait for this many ledger records, and return them by offset."""
    return await until_answer(lambda: ledgers(settings), lambda found: len(found) >= count)


def partitions(found: dict[int, Decisions]) -> list[list[int]]:
    """The partitions that each record names."""
    return [[source.partition for source in each.sources] for each in found.values()]


async def test_a_judge_that_begins_to_lead_publishes_what_it_knows_and_refuses_what_differs(
    settings: Settings, tmp_path: Path
) -> None:
    settings = settings.model_copy(update={"session_seconds": 1.0, "flush_seconds": 0.1})
    names = await create(settings)
    async with running(JudgeRole(settings)):
        await judge_more(settings, 0)
        await published(settings, 1)
        await judge_more(settings, 1)
    assert partitions(await ledgers(settings)) == [[0]]
    async with running(JudgeRole(settings)):
        found = await published(settings, 2)
        assert partitions(found) == [[0], [0, 1]]
    newest = max(found)
    own = await follow(settings, directory(settings))
    assert own[0].ledger == newest
    assert await follow(settings, tmp_path / "fresh") == own
    assert await recompute(settings) == []

    forged = structs.replace(found[newest], sources=[], ledger=LedgerPart(0, 0))
    (stands,) = await append(settings, encode_decisions(forged), topic=names.decisions)
    why = "has number of sources 0, but the state has 2"
    said = await refusal_of(JudgeRole(settings))
    assert f"the ledger record at decisions offset {stands.offset} {why}" in said
    assert await recompute(settings) == [f"decisions offset {stands.offset}: the ledger record {why}"]

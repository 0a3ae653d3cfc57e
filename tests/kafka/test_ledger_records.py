"""Ledger records on the topic: when a leader publishes them, what a crash leaves, and who refuses them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from stream.checkpoints.kinds import meta_of
from stream.checkpoints.manifest import checkpoint_of
from stream.judge.state.meta import Meta
from stream.kafka.names import TopicNames
from stream.messages.decision import Decisions, LedgerPart, encode_decisions
from stream.roles.auditor.recompute import recompute
from stream.roles.judge import ledger_records
from stream.roles.judge.role import JudgeRole
from stream.settings import Settings
from tests.commands import succeeded
from tests.kafka.judge_helpers import (
    append,
    decided,
    ledgers,
    once,
    part,
    places,
    record,
    refusal_of,
    verdicts,
)
from tests.kafka.judged_rounds import catalogue, directory, follow, kept
from tests.kafka.worker_helpers import create, running
from tests.kills import killed_command
from tests.night import cases
from tests.waiting import until

pytestmark = pytest.mark.broker


@pytest.fixture
async def deployed(settings: Settings, tmp_path: Path) -> Settings:
    settings = settings.model_copy(
        update={"session_seconds": 1.0, "flush_seconds": 0.1, "checkpoints": str(tmp_path / "objects")}
    )
    await create(settings)
    return settings


async def judge_more(settings: Settings, partition: int) -> None:
    """Have pages of another partition judged."""
    await decided(settings, await append(settings, record(part(partition, 0, 3, opening=True))))


async def published(settings: Settings, count: int) -> dict[int, Decisions]:
    """Wait for this many ledger records, and return them by offset."""

    async def there() -> bool:
        return len(await ledgers(settings)) >= count

    await until(there)
    return await ledgers(settings)


def partitions(ledger: Decisions) -> list[int]:
    """The partitions that a ledger record names."""
    return [each.partition for each in ledger.sources]


def meta(settings: Settings) -> Meta:
    found = meta_of(directory(settings), "judge")
    assert found is not None
    return found


async def test_a_judge_that_begins_to_lead_publishes_what_it_knows(
    deployed: Settings, tmp_path: Path
) -> None:
    async with running(JudgeRole(deployed)):
        await judge_more(deployed, 0)
        await published(deployed, 1)
        await judge_more(deployed, 1)
    assert list(map(partitions, (await ledgers(deployed)).values())) == [[0]]
    async with running(JudgeRole(deployed)):
        found = await published(deployed, 2)
        assert list(map(partitions, found.values())) == [[0], [0, 1]]
    newest = max(found)
    assert meta(deployed).ledger == newest
    followed, digest = await follow(deployed, tmp_path / "fresh")
    assert followed == meta(deployed)
    assert followed.ledger == newest
    own, own_digest = await follow(deployed, directory(deployed))
    assert (own, own_digest) == (followed, digest)
    assert await recompute(deployed) == []


@pytest.mark.night
async def test_one_is_published_in_each_interval_and_checkpoints_name_the_last(
    deployed: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In parts, as if there were very many sources."""
    monkeypatch.setattr(ledger_records, "DECISIONS_BYTES", 700)
    often = deployed.model_copy(update={"checkpoint_interval": 0.1})
    async with running(JudgeRole(often)):
        for partition in range(9):
            await judge_more(often, partition)

        async def all_sources() -> bool:
            return 9 in {each.ledger.total for each in (await ledgers(often)).values() if each.ledger}

        await until(all_sources)
        await until(lambda: kept(often))
    found = await ledgers(often)
    heads = [offset for offset, each in found.items() if each.ledger and not each.ledger.first]
    assert 2 < len(heads) < len(found)
    last = [each for offset, each in found.items() if offset >= heads[-1]]
    assert [number for each in last for number in partitions(each)] == list(range(9))
    assert [each.ledger.first for each in last if each.ledger][1:] == [
        sum(len(each.sources) for each in last[:n]) for n in range(1, len(last))
    ]
    assert meta(often).ledger == heads[-1]
    # A checkpoint made before the first ledger record was applied names none.
    assert {each.ledger for each in kept(often)} <= {0, *heads}
    assert (await follow(often, tmp_path / "fresh"))[0].ledger == heads[-1]
    assert await recompute(often) == []


@pytest.mark.night
async def test_a_requested_checkpoint_has_a_new_ledger_record(deployed: Settings) -> None:
    async with running(JudgeRole(deployed)):
        await judge_more(deployed, 0)
        await published(deployed, 1)
        await judge_more(deployed, 1)
        out, _ = await succeeded(deployed, "checkpoint", "now")
        found = await ledgers(deployed)
        assert list(map(partitions, found.values())) == [[0], [0, 1]]
        name = checkpoint_of(meta(deployed).journal, out.strip())
        assert name is not None
        assert catalogue(deployed).read(name).ledger == max(found)


@pytest.mark.night
@pytest.mark.parametrize(
    ("failpoint", "left"),
    cases(
        [("judge.ledger_sent", 0), ("judge.ledger_committed", 1), ("judge.ledger_applied", 1)],
        by_day=[("judge.ledger_committed", 1)],
    ),
)
async def test_a_judge_that_is_killed_at_a_ledger_record_repeats_nothing(
    deployed: Settings, failpoint: str, left: int, tmp_path: Path
) -> None:
    """Everything is delivered again."""
    parts = [part(0, 0, 3, opening=True), part(1, 0, 3, opening=True)]
    await append(deployed, *map(record, parts))
    await killed_command(deployed, failpoint, "judge")
    assert len(await ledgers(deployed)) == left
    parts.append(part(1, 3, 5))
    async with running(JudgeRole(deployed)):
        await decided(deployed, await append(deployed, *map(record, parts)))
        found = await published(deployed, left + 1)
    assert places(await verdicts(deployed)) == once(*parts)
    assert {tuple(partitions(each)) for each in found.values()} == {(0, 1)}
    assert await follow(deployed, tmp_path / "fresh") == await follow(deployed, directory(deployed))
    assert await recompute(deployed) == []


async def test_a_ledger_record_that_differs_is_refused_by_name(deployed: Settings) -> None:
    async with running(JudgeRole(deployed)):
        await judge_more(deployed, 0)
        ((_, ledger),) = (await published(deployed, 1)).items()
    forged = structs.replace(ledger, sources=[], ledger=LedgerPart(0, 0))
    topic = TopicNames(deployed.namespace).decisions
    (stands,) = await append(deployed, encode_decisions(forged), topic=topic)
    why = "has number of sources 0, but the state has 1"
    said = await refusal_of(JudgeRole(deployed))
    assert f"the ledger record at decisions offset {stands.offset} {why}" in said
    assert await recompute(deployed) == [f"decisions offset {stands.offset}: the ledger record {why}"]

"""Checkpoints of an elector on a real broker: it goes on from an older state, and repeats nothing that the
topic says. Logs are trimmed no further than they need them."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.manifest import Manifest, file_object
from stream.kafka import broker_metadata, topics
from stream.kafka.log_starts import delete_records
from stream.roles.elector.role import ElectorRole
from stream.roles.judge.role import JudgeRole
from stream.roles.trimmer.role import trim_once
from stream.settings import Settings
from tests.checkpointed import flip
from tests.kafka.judge_helpers import append, decided, part, record
from tests.kafka.judged_rounds import ROUND, catalogue, has_checkpoint, judge_rounds, with_checkpoints
from tests.kafka.judged_rounds import kept as kept_of_judge
from tests.kafka.test_elector import PAGES, all_agree, caught_up, judge, kept_pages, told
from tests.kafka.test_trim import goes_on, starts
from tests.kafka.worker_helpers import create, running
from tests.property.best_oracle import crawl
from tests.waiting import until, until_answer

pytestmark = pytest.mark.broker

PART = 30
"""Journal records that are judged before the checkpoint."""
EARLY, ALL = 2, 5
"""Rounds of pages before an elector's only checkpoint, and all."""


@pytest.fixture
def electing(settings: Settings, tmp_path: Path) -> Settings:
    """Tells at once, flushes often, and makes checkpoints often."""
    electing = {"elect": "longest", "elect_seconds": 0.0, "flush_seconds": 0.05}
    return with_checkpoints(settings, tmp_path / "objects", checkpoints_kept=1, **electing)


async def kept(settings: Settings) -> list[Manifest]:
    """The elector's checkpoints, newest first."""
    found = Catalogue(settings.checkpoints or "")
    journal = (await topics.wait_for_genesis(settings)).journal
    return [found.read(name) for name in found.kept(journal, "elector")]


async def made_at(settings: Settings, applied: int) -> None:
    await until_answer(lambda: kept(settings), lambda found: any(each.applied == applied for each in found))


def lose_elector(settings: Settings) -> None:
    shutil.rmtree(settings.state_dir / settings.namespace / "elector")


@asynccontextmanager
async def electing_on(settings: Settings) -> AsyncIterator[list[str]]:
    """Elect what is due, and stop on exit. Yields the names of checkpoints that were restored."""
    with capture_logs() as logs:
        async with running(ElectorRole(settings)) as role:
            await caught_up(role)
            yield [each["checkpoint"] for each in logs if each["event"] == "restored"]


async def test_an_elector_restored_where_the_logs_were_trimmed_repeats_nothing(electing: Settings) -> None:
    """From a checkpoint in the middle of what was judged and told."""
    names = await create(electing)
    judged = crawl(4, PAGES, offset=0)
    middle = await judge(electing, judged, range(PART))
    async with electing_on(electing):
        await made_at(electing, middle)
    end = await judge(electing, judged, range(middle, 2 * PART))
    async with electing_on(electing.model_copy(update={"checkpoints": None})):
        pass
    manifest, *_ = await kept(electing)
    assert manifest.applied == middle < end
    async with broker_metadata.connect(electing) as client:
        await delete_records(client, names.decisions, manifest.decided)
        await delete_records(client, names.journal, manifest.applied - 1)
    before = await told(electing)
    lose_elector(electing)
    async with electing_on(electing) as restored:
        assert restored == [str(manifest.name)]
    assert await told(electing) == before
    async with electing_on(electing) as restored:
        await judge(electing, judged, range(end, 1 << 30))
        assert restored == []
    async with electing_on(electing):
        pass
    assert all_agree(await kept_pages(electing, judged))


async def elect(settings: Settings) -> list[str]:
    """Elect until a checkpoint has all that was judged. Returns the names of those that were restored."""
    async with electing_on(settings) as restored:
        await made_at(settings, kept_of_judge(settings)[0].applied)
        return restored


@pytest.fixture
async def behind(electing: Settings) -> tuple[Settings, Manifest]:
    """A deployment whose elector was stopped after some of the pages, and its only checkpoint."""
    await create(electing)
    await judge_rounds(electing, 0, EARLY)
    await elect(electing)
    await judge_rounds(electing, EARLY, ALL, ledger=True)
    (manifest,) = await kept(electing)
    return electing, manifest


async def test_the_logs_are_kept_for_an_elector_that_is_behind(behind: tuple[Settings, Manifest]) -> None:
    settings, manifest = behind
    outcome = await trim_once(settings, 0)
    assert not outcome.has_problem, outcome
    assert (outcome.held.reason, str(manifest.name) in outcome.held.text) == ("elector", True)
    decisions, journal = await starts(settings)
    assert 0 < decisions <= manifest.decided < kept_of_judge(settings)[0].ledger
    assert 0 < journal <= manifest.applied - 1
    found = catalogue(settings)
    assert found.is_verified(manifest)
    assert found.is_verified(kept_of_judge(settings)[0])
    lose_elector(settings)
    assert await elect(settings) == [str(manifest.name)]
    await trim_once(settings, 0)  # verifies the newest, so that the next checkpoint replaces this one
    async with running(JudgeRole(settings)):
        appended = await append(settings, record(part(0, ALL * ROUND, ALL * ROUND + 1)))
        await decided(settings, appended)
        await until(partial(has_checkpoint, settings, appended[-1].offset + 1, ledger=True))
    assert await elect(settings) == []
    assert manifest.name not in {each.name for each in await kept(settings)}
    await trim_once(settings, 0)
    assert (await starts(settings))[0] > decisions
    await goes_on(settings, ALL)


@pytest.mark.night
async def test_checkpoints_of_an_elector_that_are_all_damaged_hold_the_logs(
    behind: tuple[Settings, Manifest],
) -> None:
    """A judge's that was verified does not make up for them."""
    settings, manifest = behind
    objects, newest = Path(settings.checkpoints or ""), kept_of_judge(settings)[0]
    flip(objects / file_object(manifest.journal, manifest.files[-1].digest))
    outcome = await trim_once(settings, 0)
    assert outcome.held.reason == "unverified"
    assert "none of the checkpoints of elector in " in outcome.held.text
    assert catalogue(settings).is_verified(newest)
    assert (await trim_once(settings, 0, dry_run=True)).held.reason == "elector"

    judges = catalogue(settings).read_once(newest.name).digests
    for each in {each.digest for each in manifest.files} - judges:
        (objects / file_object(manifest.journal, each)).unlink()
    outcome = await trim_once(settings, 0)
    assert (outcome.held.reason, outcome.has_problem) == ("none", True)
    assert "none of the checkpoints of elector in " in outcome.held.text
    assert any(f"checkpoint {manifest.name}: " in each for each in outcome.damaged)
    assert await starts(settings) == (0, 0)

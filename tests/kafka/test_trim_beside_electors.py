"""Logs are trimmed no further than the checkpoints of electors need them, while there are electors."""

from __future__ import annotations

import os
import shutil
import time
from functools import partial
from pathlib import Path

import pytest

from stream.checkpoints.manifest import STORED, Manifest, file_object
from stream.checkpoints.pruning import ABANDONED_SECONDS
from stream.roles.judge.role import JudgeRole
from stream.roles.trimmer.role import trim_once
from stream.settings import Settings
from tests.kafka.judge_helpers import append, decided, part, record
from tests.kafka.judged_rounds import ROUND, catalogue, has_checkpoint, judge_rounds, kept, with_checkpoints
from tests.kafka.test_elector_checkpoints import electing_on
from tests.kafka.test_elector_checkpoints import kept as kept_of_elector
from tests.kafka.test_trim import goes_on, starts
from tests.kafka.worker_helpers import create, running
from tests.waiting import until

pytestmark = pytest.mark.broker

EARLY, ALL = 2, 5
"""Rounds of pages before the elector's only checkpoint, and all."""


async def elect(settings: Settings) -> list[str]:
    """Elect until a checkpoint has all that was judged. Returns the names of checkpoints that were
    restored."""

    async def made() -> bool:
        return any(each.applied == kept(settings)[0].applied for each in await kept_of_elector(settings))

    async with electing_on(settings) as restored:
        await until(made)
        return restored


@pytest.fixture
async def elected(settings: Settings, tmp_path: Path) -> Settings:
    """A deployment whose elector was stopped after some of the pages."""
    electing = {"elect": "longest", "elect_seconds": 0.0, "flush_seconds": 0.05}
    settings = with_checkpoints(settings, tmp_path / "objects", checkpoints_kept=1, **electing)
    await create(settings)
    await judge_rounds(settings, 0, EARLY)
    await elect(settings)
    await judge_rounds(settings, EARLY, ALL, ledger=True)
    return settings


async def only(settings: Settings) -> Manifest:
    """The elector's checkpoint."""
    (manifest,) = await kept_of_elector(settings)
    return manifest


async def judge_one(settings: Settings, place: int) -> None:
    async with running(JudgeRole(settings)):
        appended = await append(settings, record(part(0, place, place + 1)))
        await decided(settings, appended)
        await until(partial(has_checkpoint, settings, appended[-1].offset + 1, ledger=True))


async def test_the_logs_are_kept_for_an_elector_that_is_behind(elected: Settings) -> None:
    manifest = await only(elected)
    outcome = await trim_once(elected, 0)
    assert not outcome.has_problem, outcome
    assert (outcome.held.reason, str(manifest.name) in outcome.held.text) == ("elector", True)
    decisions, journal = await starts(elected)
    assert 0 < decisions <= manifest.decided < kept(elected)[0].ledger
    assert 0 < journal <= manifest.applied - 1
    found = catalogue(elected)
    assert found.is_verified(manifest)
    assert found.is_verified(kept(elected)[0])
    shutil.rmtree(elected.state_dir / elected.namespace / "elector")
    assert await elect(elected) == [str(manifest.name)]
    await trim_once(elected, 0)  # verifies the newest, so that the next checkpoint replaces this one
    await judge_one(elected, ALL * ROUND)
    assert await elect(elected) == []
    assert manifest.name not in {each.name for each in await kept_of_elector(elected)}
    await trim_once(elected, 0)
    assert (await starts(elected))[0] > decisions
    await goes_on(elected, ALL)


@pytest.mark.night
async def test_checkpoints_of_an_elector_that_are_all_damaged_hold_the_logs(elected: Settings) -> None:
    manifest = await only(elected)
    judges = catalogue(elected).read_once(kept(elected)[0].name).digests
    for each in {each.digest for each in manifest.files} - judges:
        (Path(elected.checkpoints or "") / file_object(manifest.journal, each)).unlink()
    outcome = await trim_once(elected, 0)
    assert outcome.has_problem
    assert outcome.held.reason == "none"
    assert "none of the checkpoints of elector in " in outcome.held.text
    assert any(f"checkpoint {manifest.name}: " in each for each in outcome.damaged)
    assert await starts(elected) == (0, 0)


@pytest.mark.night
async def test_a_checkpoint_of_an_elector_that_cannot_be_opened_holds_the_logs(
    elected: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A judge's that was verified does not make up for it."""
    manifest = await only(elected)
    path = Path(elected.checkpoints or "") / file_object(manifest.journal, manifest.files[-1].digest)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    outcome = await trim_once(elected, 0)
    assert outcome.held.reason == "unverified"
    assert "none of the checkpoints of elector in " in outcome.held.text
    assert catalogue(elected).is_verified(kept(elected)[0])
    assert await starts(elected) == (0, 0)
    dry = await trim_once(elected, 0, dry_run=True)
    assert dry.held.reason == "elector"


@pytest.mark.night
async def test_an_elector_that_is_gone_for_a_week_holds_nothing(elected: Settings) -> None:
    outcome = await trim_once(elected, 0)
    assert outcome.held.reason == "elector"
    manifest = await only(elected)
    then = time.time() - ABANDONED_SECONDS - 60
    os.utime(Path(elected.checkpoints or "") / manifest.name.object(STORED), (then, then))
    await judge_one(elected, ALL * ROUND)
    assert await kept_of_elector(elected) == []
    outcome = await trim_once(elected, 0)
    assert outcome.held.reason == "checkpoint"
    assert (await starts(elected))[0] > manifest.decided

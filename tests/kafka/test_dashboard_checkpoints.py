"""Checkpoints of a dashboard: a lost state is restored, though the topic has not all any more that was
counted."""

from __future__ import annotations

import json
import shutil
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
from aiokafka.admin import RecordsToDelete

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.kinds import meta_of
from stream.checkpoints.manifest import Manifest
from stream.dashboard.counting.app import directory_of
from stream.figures import FIGURES
from stream.kafka import broker_metadata, clients
from stream.kafka.names import TopicNames
from stream.messages.verdict import VerdictRecord
from stream.roles.trimmer.role import trim_once
from stream.settings import Settings
from tests.commands import succeeded
from tests.kafka.dashboard_helpers import VerdictMaker, by_kind, dashboard, decide
from tests.kafka.worker_helpers import create
from tests.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("no_children")]


@pytest.fixture
async def settings(settings: Settings, tmp_path: Path) -> Settings:
    """A deployment with topics, whose dashboard makes checkpoints often."""
    await create(settings)
    update = {"checkpoints": str(tmp_path / "objects"), "checkpoint_interval": 0.1, "flush_seconds": 0.1}
    return settings.model_copy(update=update)


def kept(settings: Settings) -> list[Manifest]:
    """The dashboard's checkpoints, newest first."""
    catalogue = Catalogue(settings.checkpoints or "")
    journals = catalogue.journals()
    return [catalogue.read(name) for each in journals for name in catalogue.kept(each, "dashboard")]


def logged(settings: Settings, event: str) -> list[dict[str, str]]:
    lines = (settings.state_dir.parent / "dashboard.log").read_text().splitlines()
    records = [json.loads(line) for line in lines if line.startswith("{")]
    return [each for each in records if each["event"] == event]


def is_in_a_checkpoint(settings: Settings) -> bool:
    """Whether the newest checkpoint has all that was flushed, which is something."""
    meta, newest = meta_of(directory_of(settings) / FIGURES, "dashboard"), kept(settings)
    return bool(newest and meta and newest[0].offsets["verdicts"] == meta.positions)


async def trim(settings: Settings) -> None:
    async with broker_metadata.connect(settings) as client:
        bounds = await broker_metadata.log_bounds(client, [TopicNames(settings.namespace).verdicts])
    async with clients.open_client(settings, clients.admin(settings)) as admin:
        await admin.delete_records({key: RecordsToDelete(each.end) for key, each in bounds.items()})


@pytest.fixture
async def counted(settings: Settings) -> list[VerdictRecord]:
    """Verdicts of which there is a checkpoint, and which the topic has no more."""
    verdicts = VerdictMaker().some(120)
    await decide(settings, verdicts)
    async with dashboard(settings) as client:
        await client.counted(120)
        await until(partial(is_in_a_checkpoint, settings))
    await trim(settings)
    return verdicts


async def test_a_lost_state_is_restored_and_counts_on(
    settings: Settings, counted: list[VerdictRecord]
) -> None:
    newest = kept(settings)[0]
    assert (newest.kind, newest.format) == ("dashboard", 2)
    shutil.rmtree(directory_of(settings))
    more = VerdictMaker().some(40)
    await decide(settings, more)
    async with dashboard(settings) as client:
        figures = await client.counted(160)
        assert (figures["verdicts"], figures["since"]) == (by_kind([*counted, *more]), None)
        found = await client.post("/api/v1/lookup", {"url": counted[0].url})
        assert counted[0].id in [each["id"] for each in found["history"]]
    assert [each["checkpoint"] for each in logged(settings, "restored")] == [str(newest.name)]


@pytest.mark.night
async def test_without_a_checkpoint_what_the_topic_still_has_is_counted(
    settings: Settings, counted: list[VerdictRecord]
) -> None:
    shutil.rmtree(directory_of(settings))
    left = VerdictMaker().some(12)
    await decide(settings, left)
    async with dashboard(settings.model_copy(update={"checkpoints": None})) as client:
        figures = await client.counted(12)
        assert figures["verdicts"] == by_kind(left)
        began, ended = (int(datetime.fromisoformat(left[at].decided_at).timestamp()) for at in (0, -1))
        assert began <= figures["since"] <= ended


@pytest.mark.night
async def test_a_dashboard_that_is_stopped_or_runs_is_asked_for_a_checkpoint_which_holds_no_logs(
    settings: Settings, counted: list[VerdictRecord]
) -> None:
    rarely = settings.model_copy(update={"checkpoint_interval": 3600.0})
    out, _ = await succeeded(settings, "checkpoint", "now", "--kind", "dashboard")
    assert out.strip() == str(kept(settings)[0].name)
    async with dashboard(rarely) as client:
        await decide(settings, VerdictMaker().some(12))
        await client.counted(132)
        out, _ = await succeeded(settings, "checkpoint", "now", "--kind", "dashboard")
    newest = kept(settings)[0]
    assert out.strip() == str(newest.name)
    outcome = await trim_once(settings, 0)
    assert outcome.held.reason == "none"
    assert "has no checkpoint of a judge" in outcome.held.text
    assert (outcome.unused, outcome.damaged) == ([], [])

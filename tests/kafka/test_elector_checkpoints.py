"""Checkpoints of an elector on a real broker: it goes on from an older state, and repeats nothing that the
topic says."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.kinds import meta_of
from stream.checkpoints.manifest import Manifest
from stream.elector.state import Meta
from stream.kafka import broker_metadata, topics
from stream.kafka.log_starts import delete_records
from stream.kafka.names import TopicNames
from stream.roles.elector.role import ElectorRole
from stream.settings import Settings
from tests.commands import succeeded
from tests.kafka.judge_helpers import refusal_of
from tests.kafka.test_elector import PAGES, all_agree, caught_up, judge, kept_pages, told
from tests.kafka.worker_helpers import create, running
from tests.property.best_oracle import Judged, crawl
from tests.waiting import until

pytestmark = pytest.mark.broker

PART = 30
"""Journal records that are judged before the checkpoint."""


@pytest.fixture
def electing(settings: Settings, tmp_path: Path) -> Settings:
    """Tells at once, flushes often, and makes checkpoints often."""
    return settings.model_copy(
        update={
            "elect": "longest",
            "elect_seconds": 0.0,
            "flush_seconds": 0.05,
            "checkpoints": str(tmp_path / "objects"),
            "checkpoint_interval": 0.1,
        }
    )


def without_checkpoints(settings: Settings) -> Settings:
    return settings.model_copy(update={"checkpoints": None})


async def kept(settings: Settings) -> list[Manifest]:
    """The elector's checkpoints, newest first."""
    found = Catalogue(settings.checkpoints or "")
    journal = (await topics.wait_for_genesis(settings)).journal
    return [found.read(name) for name in found.kept(journal, "elector")]


def directory(settings: Settings) -> Path:
    return settings.state_dir / settings.namespace / "elector"


def meta(settings: Settings) -> Meta:
    found = meta_of(directory(settings), "elector")
    assert found is not None
    return found


@asynccontextmanager
async def electing_on(settings: Settings) -> AsyncIterator[list[str]]:
    """Elect what is due, and stop on exit. Yields the names of checkpoints that were restored."""
    with capture_logs() as logs:
        async with running(ElectorRole(settings)) as role:
            await caught_up(role)
            yield [each["checkpoint"] for each in logs if each["event"] == "restored"]


async def trim(settings: Settings, manifest: Manifest) -> None:
    """Trim both logs as far as a checkpoint allows."""
    names = TopicNames(settings.namespace)
    async with broker_metadata.connect(settings) as client:
        await delete_records(client, names.decisions, manifest.decided)
        await delete_records(client, names.journal, manifest.applied - 1)


async def made_at(settings: Settings, applied: int) -> Manifest:
    async def made() -> bool:
        return any(each.applied == applied for each in await kept(settings))

    await until(made)
    return next(each for each in await kept(settings) if each.applied == applied)


@pytest.fixture
async def elected(electing: Settings) -> tuple[list[Judged], int, Manifest]:
    """A crawl with a checkpoint in the middle of what was judged, and told, of it; the end of that in the
    journal; and the checkpoint. The logs are trimmed to it."""
    await create(electing)
    judged = crawl(4, PAGES, offset=0)
    middle = await judge(electing, judged, range(PART))
    async with electing_on(electing):
        manifest = await made_at(electing, middle)
    end = await judge(electing, judged, range(middle, 2 * PART))
    async with electing_on(without_checkpoints(electing)):
        pass
    assert meta(electing).applied == end > manifest.applied
    await trim(electing, manifest)
    return judged, end, manifest


async def test_an_elector_restored_where_the_logs_were_trimmed_repeats_nothing(
    electing: Settings, elected: tuple[list[Judged], int, Manifest]
) -> None:
    judged, end, manifest = elected
    before = await told(electing)
    shutil.rmtree(directory(electing))
    async with electing_on(electing) as restored:
        assert restored == [str(manifest.name)]
    assert await told(electing) == before
    async with electing_on(electing) as restored:
        await judge(electing, judged, range(end, 1 << 30))
        assert restored == []
    async with electing_on(electing):
        pass
    assert all_agree(await kept_pages(electing, judged))


@pytest.mark.night
async def test_what_no_checkpoint_fits_is_refused_by_name(
    electing: Settings, elected: tuple[list[Judged], int, Manifest]
) -> None:
    *_, manifest = elected
    shutil.rmtree(directory(electing))
    said = await refusal_of(ElectorRole(without_checkpoints(electing)))
    assert f"empty, but topic {electing.namespace}.decisions starts at {manifest.decided}" in said
    assert "the setting checkpoints names no store" in said
    said = await refusal_of(ElectorRole(electing.model_copy(update={"elect": "newest"})))
    assert f"checkpoint {manifest.name}: has elect=longest, but newest is needed" in said
    named = electing.model_copy(update={"elector_name": "b"})
    await create(named)
    said = await refusal_of(ElectorRole(named))
    assert "there is none of this journal and of kind elector-b" in said
    assert not directory(electing).exists()


@pytest.mark.night
async def test_a_running_elector_is_asked_for_a_checkpoint(electing: Settings) -> None:
    await create(electing)
    rarely = electing.model_copy(update={"checkpoint_interval": 3600.0})
    judged = crawl(5, PAGES, offset=0)
    middle = await judge(rarely, judged, range(PART))
    async with running(ElectorRole(rarely)) as role:
        await made_at(rarely, middle)
        end = await judge(rarely, judged, range(middle, 1 << 30))
        await caught_up(role)
        await until(lambda: meta(rarely).applied == end)
        output, _ = await succeeded(rarely, "checkpoint", "now", "--kind", "elector")
        newest, *_ = await kept(rarely)
        assert output.strip() == str(newest.name)
        assert newest.applied == end
        value = role.watch.metrics.registry.get_sample_value
        assert value("neardup_elector_checkpoint_bytes") == newest.bytes
        assert value("neardup_elector_checkpoint_interval_seconds") == 3600.0
        assert value("neardup_elector_checkpoint_timestamp_seconds") == newest.time / 1000
    assert msgspec.structs.asdict(newest)["ledger"] == meta(rarely).ledger

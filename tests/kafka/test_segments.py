"""Judges export segments of anchors beside checkpoints, and announce them on a topic of the deployment."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from stream.checkpoints.catalogue import Catalogue
from stream.errors import EXIT_REFUSED, SettingsError, StateError
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.judge.segments.dead_file import decode_dead
from stream.judge.segments.file import Origin, SegmentFile
from stream.kafka import topics
from stream.kafka.announced_segments import AnnouncedSegments, SegmentAnnouncer
from stream.kafka.names import TopicNames
from stream.messages.journal import Genesis
from stream.messages.segments import SegmentRecord
from stream.messages.verdict_options import VerdictOptions
from stream.roles.judge.role import JudgeRole
from stream.roles.trimmer.role import trim_once
from stream.roles.trimmer.trim import CHECKPOINT, SEGMENTS
from stream.settings import Settings
from tests.commands import neardup_process
from tests.kafka.judge_helpers import append, decided, error_of, part, record
from tests.kafka.worker_helpers import read_all, running
from tests.waiting import until

pytestmark = pytest.mark.broker


class Deployment:
    """A judge whose segments have 16 anchors."""

    def __init__(self, settings: Settings, objects: Path) -> None:
        self.settings = settings.model_copy(
            update={
                "tables_generation": 16,
                "tables_memory": 0,
                "checkpoints": str(objects),
                "checkpoint_interval": 0.1,
                "segment_anchors": 16,
            }
        )
        self.objects = objects

    async def create(self) -> Genesis:
        self.genesis = await topics.create(self.settings, Scheme(), VerdictOptions(), seed=PUBLIC_SEED)
        return self.genesis

    async def pages(self, start: int, end: int, *, reseed: object = None) -> None:
        """Append pages, of which each becomes an anchor."""
        pages = part(0, start, end, opening=not start, reseed=reseed)
        self.appended = await append(self.settings, record(pages))

    async def judged(self) -> None:
        await decided(self.settings, self.appended)

    async def killed_at(self, failpoint: str) -> None:
        """Run a judge in a process of its own until it is killed there."""
        environment = os.environ | self.settings.environment() | {"NEARDUP_FAILPOINT": failpoint}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "stream.cli", "judge", env=environment
        )
        assert await process.wait() == -signal.SIGKILL

    async def announced(self) -> dict[int, SegmentRecord]:
        async with AnnouncedSegments(self.settings, self.genesis) as topic:
            return dict(await topic.read())

    async def until_announced(self, *firsts: int) -> dict[int, SegmentRecord]:
        async def done() -> bool:
            return sorted(await self.announced()) == list(firsts)

        await until(done)
        return await self.announced()

    def stored(self) -> set[str]:
        return {each.digest for each in Catalogue(str(self.objects)).segments(self.genesis.journal)}

    def dead(self, segment: SegmentRecord) -> list[int]:
        file = SegmentFile(self.objects / segment.object, Origin.of(self.genesis))
        content = (self.objects / segment.dead_object).read_bytes()
        return decode_dead(content, "it", segment.journal, file.segment).tolist()


async def test_segments_are_exported_and_announced_whoever_is_killed(
    settings: Settings, tmp_path: Path
) -> None:
    deployment = Deployment(settings, tmp_path / "objects")
    await deployment.create()
    await deployment.pages(0, 40)
    await deployment.killed_at("segment.exported")
    (orphan,) = deployment.stored()
    assert await deployment.announced() == {}
    await deployment.killed_at("segment.announced")
    first = await deployment.until_announced(0)
    assert first[0].digest == orphan, "the same anchors make the same file"
    other = deployment.settings.model_copy(update={"state_dir": tmp_path / "other"})
    async with running(JudgeRole(deployment.settings)):
        both = await deployment.until_announced(0, 16)
        async with running(JudgeRole(other)):
            assert both[0].digest == orphan
            for each in both.values():
                file = SegmentFile(deployment.objects / each.object, Origin.of(deployment.genesis))
                assert (file.segment.first, file.segment.end) == (each.first, each.end)
                assert np.unique(file.columns.fingerprint).size == 16
                assert deployment.dead(each) == []
            # The pages of 20 anchors change, which die, and 20 new ones follow.
            changed = part(1, 0, 20, opening=True, reseed="changed")
            for place, page in enumerate(part(0, 0, 20).rows):
                changed.rows[place] = structs.replace(
                    changed.rows[place], url=page.url, url_digest=page.url_digest
                )
            deployment.appended = await append(deployment.settings, record(changed))
            await deployment.judged()

            async def renewed() -> bool:
                announced = await deployment.announced()
                return [deployment.dead(each) for each in announced.values()][:2] == [
                    list(range(16)),
                    list(range(16, 20)),
                ]

            await until(renewed)
            announced = await deployment.until_announced(0, 16, 32)
    assert {first: each.digest for first, each in announced.items() if first < 32} == {
        first: each.digest for first, each in both.items()
    }, "files stay while anchors die"
    written = await read_all(settings, TopicNames(settings.namespace).segments)
    assert {(each.key, each.partition) for each in written} == {
        (each.key, each.partition) for each in announced.values()
    }

    # On demand, however long the interval is.
    rarely = deployment.settings.model_copy(update={"checkpoint_interval": 3600.0})
    async with running(JudgeRole(rarely)):
        await deployment.pages(40, 60)
        await deployment.judged()
        status, _, errors = await neardup_process(rarely, "checkpoint", "now")
        assert status == 0, errors
        await deployment.until_announced(0, 16, 32, 48, 64)

    status, out, errors = await neardup_process(rarely, "checkpoint", "list")
    assert status == 0, errors
    assert " files of anchors and lists of their dead, " in out

    # Whoever loads a segment needs the decisions from its announcement on.
    outcome = await trim_once(deployment.settings, 0.0, dry_run=True)
    assert outcome.held.reason == CHECKPOINT, outcome.held
    async with SegmentAnnouncer(deployment.settings, deployment.genesis) as topic:
        await topic.announce(structs.replace(announced[16], decided=1))
        outcome = await trim_once(deployment.settings, 0.0, dry_run=True)
        assert outcome.held.reason == SEGMENTS, outcome.held
        assert "anchors [16, 32) was announced as of decisions offset 1" in outcome.held.text
        await topic.announce(structs.replace(announced[16], journal="0" * 32))
    error = await error_of(JudgeRole(deployment.settings))
    assert isinstance(error, StateError), repr(error)
    assert error.exit_code == EXIT_REFUSED
    assert f"topic {settings.namespace}.segments partition {announced[16].partition} offset " in str(error)
    assert f"is of journal {'0' * 32}, not {deployment.genesis.journal}" in str(error)


async def test_segments_need_checkpoints(settings: Settings, tmp_path: Path) -> None:
    deployment = Deployment(settings, tmp_path / "objects")
    await deployment.create()
    error = await error_of(JudgeRole(deployment.settings.model_copy(update={"checkpoints": None})))
    assert isinstance(error, SettingsError), repr(error)
    assert str(error).startswith("segment_anchors: needs the setting checkpoints")

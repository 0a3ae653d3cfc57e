"""An empty state directory is restored from the newest checkpoint that fits, and no page is judged twice."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete
from structlog.testing import capture_logs

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.kinds import JUDGE
from stream.checkpoints.known_damage import note_damage
from stream.checkpoints.manifest import CheckpointName, encode
from stream.checkpoints.restoring import restore
from stream.errors import EXIT_REFUSED, DamagedStateError, StateError
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.kafka import topics
from stream.messages.verdict_options import VerdictOptions
from stream.roles.auditor.recompute import recompute
from stream.roles.judge.role import JudgeRole
from stream.settings import Settings
from tests.commands import neardup_process
from tests.kafka.judge_helpers import append, decided, error_of, once, part, places, record, verdicts
from tests.kafka.worker_helpers import admin_of, running
from tests.kills import killed_command
from tests.night import cases
from tests.waiting import until

pytestmark = pytest.mark.broker

PAGES = 60


@pytest.fixture
async def judged(settings: Settings, tmp_path: Path) -> Settings:
    """A deployment that judged pages with checkpoints after 20, 40 and 60 of them, and was stopped."""
    settings = settings.model_copy(
        update={
            "tables_generation": 16,
            "tables_memory": 0,
            "checkpoints": str(tmp_path / "objects"),
            "checkpoint_interval": 0.1,
        }
    )
    await topics.create(settings, Scheme(), VerdictOptions(), seed=PUBLIC_SEED)
    for start in range(0, PAGES, 20):
        async with running(JudgeRole(settings)):
            appended = await append(settings, record(part(0, start, start + 20, opening=not start)))
            await decided(settings, appended)
            await until(partial(has_checkpoint, settings, appended[-1].offset + 1))
    assert len(kept(settings)) == 3
    return settings


def kept(settings: Settings) -> list[CheckpointName]:
    """All checkpoints, newest first."""
    assert settings.checkpoints is not None
    catalogue = Catalogue(settings.checkpoints)
    return [name for journal in catalogue.journals() for name in catalogue.kept(journal, JUDGE)]


def has_checkpoint(settings: Settings, applied: int) -> bool:
    """Whether there is a checkpoint up to this journal offset."""
    return applied in {each.applied for each in kept(settings)}


def directory(settings: Settings) -> Path:
    return settings.state_dir / settings.namespace / "judge"


def lose(settings: Settings) -> None:
    shutil.rmtree(directory(settings).parent)


async def deliver_again(settings: Settings) -> list[Any]:
    """Append all pages again and a new one. Returns what a judge logs meanwhile."""
    with capture_logs() as logs:
        async with running(JudgeRole(settings)):
            again = [record(part(0, start, start + 20, opening=not start)) for start in range(0, PAGES, 20)]
            await decided(settings, await append(settings, *again, record(part(0, PAGES, PAGES + 1))))
    return logs


async def all_once(settings: Settings) -> None:
    assert places(await verdicts(settings)) == once(part(0, 0, PAGES + 1))
    assert await recompute(settings) == []


def restored(logs: list[Any]) -> list[str]:
    return [each["checkpoint"] for each in logs if each["event"] == "restored"]


def refused(logs: list[Any]) -> list[str]:
    return [each["reason"] for each in logs if each["event"] == "checkpoint_refused"]


async def test_a_lost_state_is_restored_and_goes_on(judged: Settings) -> None:
    newest = kept(judged)[0]
    lose(judged)
    logs = await deliver_again(judged)
    assert restored(logs) == [str(newest)]
    assert not refused(logs)
    await all_once(judged)
    async with running(JudgeRole(judged)):  # a new directory has checkpoints of its own
        await until(lambda: len({each.chain for each in kept(judged)}) == 2)


async def test_what_does_not_fit_is_named_and_the_next_older_is_restored(judged: Settings) -> None:
    assert judged.checkpoints is not None
    catalogue = Catalogue(judged.checkpoints)
    newest, middle, oldest = kept(judged)
    for spoiled in (newest, middle):
        only = {each.digest for each in catalogue.read(spoiled).files} - catalogue.digests(oldest)
        (Path(judged.checkpoints) / spoiled.file(min(only))).write_bytes(b"damaged")
    lose(judged)
    logs = await deliver_again(judged)
    assert restored(logs) == [str(oldest)]
    first, second = refused(logs)
    assert f"checkpoint {newest}: " in first
    assert f"checkpoint {middle}: " in second
    assert " is damaged: it is not what was uploaded" in second
    await all_once(judged)


@pytest.mark.night
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", 1), ("cluster", "elsewhere"), ("scheme", "0" * 16), ("options", "other"),
        ("generation", 999), ("decided", 10**6), ("last", "00" * 16),
    ],
)  # fmt: skip
async def test_a_checkpoint_of_something_else_is_refused_by_name(
    judged: Settings, field: str, value: object
) -> None:
    """If none is left, the state is built from the topics, which have everything."""
    for name in kept(judged):
        path = Path(judged.checkpoints or "") / name.object
        path.write_text(json.dumps(json.loads(path.read_bytes()) | {field: value}))
    lose(judged)
    logs = await deliver_again(judged)
    assert not restored(logs)
    reasons = refused(logs)
    assert len(reasons) == 3
    what = {"decided": "decisions up to 1000000, but it ends at", "last": "whose record"}
    assert all(what.get(field, f"has {field} {value}, but") in each for each in reasons)
    await all_once(judged)


@pytest.mark.night
async def test_a_checkpoint_ahead_of_the_journal_is_refused(judged: Settings) -> None:
    assert judged.checkpoints is not None
    catalogue = Catalogue(judged.checkpoints)
    newest = catalogue.read(kept(judged)[0])
    ahead = msgspec.structs.replace(newest, applied=10**6)
    (Path(judged.checkpoints) / ahead.name.object).write_bytes(encode(ahead))
    lose(judged)
    logs = await deliver_again(judged)
    assert restored(logs) == [str(newest.name)]
    (reason,) = refused(logs)
    assert f"has applied topic {judged.namespace}.journal up to 1000000, but it ends at" in reason


@pytest.mark.night
async def test_without_the_decisions_before_it_only_a_checkpoint_will_do(judged: Settings) -> None:
    """A state that needs deleted decisions is refused, and names why each checkpoint cannot be used."""
    assert judged.checkpoints is not None
    manifest = Catalogue(judged.checkpoints).read(kept(judged)[0])
    async with admin_of(judged) as admin:
        where = TopicPartition(f"{judged.namespace}.decisions", 0)
        await admin.delete_records({where: RecordsToDelete(before_offset=manifest.decided)})
    lose(judged)
    away = judged.model_copy(update={"checkpoints": str(Path(judged.checkpoints).with_name("none"))})
    error = await error_of(JudgeRole(away))
    assert isinstance(error, StateError), repr(error)
    assert error.exit_code == EXIT_REFUSED
    assert f"empty, but topic {judged.namespace}.decisions starts at {manifest.decided}" in str(error)
    assert "there is none of this journal" in str(error)
    assert not directory(judged).exists()
    other = judged.model_copy(update={"tables_generation": 17})
    error = await error_of(JudgeRole(other))
    assert isinstance(error, StateError), repr(error)
    assert str(error).count("has generation 16, but 17 is needed") == 3
    logs = await deliver_again(judged)
    assert restored(logs) == [str(manifest.name)]
    assert places(await verdicts(judged)) == once(part(0, 0, PAGES + 1))


@pytest.mark.night
async def test_a_damaged_state_is_restored(judged: Settings) -> None:
    (directory(judged) / "CURRENT").unlink()
    mending = judged.model_copy(update={"rebuild_damaged": True})
    logs = await deliver_again(mending)
    assert [each["event"] for each in logs if each["event"] == "state_damaged"]
    assert len(restored(logs)) == 1
    await all_once(judged)


@pytest.mark.night
async def test_a_checkpoint_of_a_damaged_state_is_not_used(judged: Settings) -> None:
    """Its files are what was uploaded, but RocksDB cannot open them: the next older one is restored."""
    assert judged.checkpoints is not None
    newest, older, _ = kept(judged)
    catalogue, path = Catalogue(judged.checkpoints), directory(judged)
    manifest = catalogue.read(newest)
    lacking = [each for each in manifest.files if each.digest not in catalogue.digests(older)]
    lacking = [each for each in lacking if each.name.endswith(".sst")][:1]
    files = [each for each in manifest.files if each not in lacking]
    changed = msgspec.structs.replace(manifest, files=files)
    (Path(judged.checkpoints) / newest.object).write_bytes(encode(changed))
    lose(judged)
    logs = await deliver_again(judged)
    assert restored(logs)[-1] == str(older)
    assert any(lacking[0].name in each for each in refused(logs))
    assert path.exists()
    await all_once(judged)


@pytest.mark.night
async def test_a_file_that_was_uploaded_damaged_is_not_restored_again(judged: Settings) -> None:
    newest, older, _ = kept(judged)
    catalogue, path = Catalogue(judged.checkpoints or ""), directory(judged)
    added = catalogue.digests(newest) - catalogue.digests(older)
    files = [each for each in catalogue.read(newest).files if each.digest in added]
    file = next(each for each in files if each.name.endswith(".sst"))
    note_damage(path, DamagedStateError(f"state directory {path}: damaged: {file.name}: Corruption: a block"))
    shutil.rmtree(path)
    logs = await deliver_again(judged)
    assert restored(logs) == [str(older)]
    (reason,) = refused(logs)
    assert f"checkpoint {newest}: has {file.name} as it was when it was found damaged" in reason
    await all_once(judged)


@pytest.mark.night
async def test_a_checkpoint_is_not_restored_again_if_the_damage_names_no_file(judged: Settings) -> None:
    newest, older, _ = kept(judged)
    catalogue, path = Catalogue(judged.checkpoints or ""), directory(judged)
    for _ in range(2):
        shutil.rmtree(path)
        restore(catalogue, catalogue.read(newest), path)
        note_damage(path, DamagedStateError(f"state directory {path}: damaged: 3 anchors of 4"))
    shutil.rmtree(path)
    logs = await deliver_again(judged)
    assert restored(logs) == [str(older)]
    (reason,) = refused(logs)
    assert f"checkpoint {newest}: was restored and then found damaged" in reason
    await all_once(judged)


@pytest.mark.night
async def test_leader_and_standby_both_make_checkpoints_and_either_ones_are_restored(
    judged: Settings, tmp_path: Path
) -> None:
    other = judged.model_copy(update={"state_dir": tmp_path / "other"})
    async with running(JudgeRole(judged)), running(JudgeRole(other)):
        appended = await append(judged, record(part(0, PAGES, PAGES + 1)))
        await decided(judged, appended)
        end = appended[-1].offset + 1
        await until(lambda: len({each.chain for each in kept(judged) if each.applied == end}) == 2)
    lose(judged)
    async with running(JudgeRole(judged)):
        await decided(judged, await append(judged, record(part(0, PAGES + 1, PAGES + 2))))
    assert places(await verdicts(judged)) == once(part(0, 0, PAGES + 2))


@pytest.mark.night
async def test_a_query_restores_its_own_copy(judged: Settings, tmp_path: Path) -> None:
    pages = tmp_path / "pages.jsonl"
    pages.write_text(json.dumps({"url": "http://a/x", "text": "nothing of the sort"}) + "\n")
    status, _, errors = await neardup_process(judged, "query", str(pages))
    assert status == 0, errors
    assert "restored" in errors
    assert (directory(judged).with_name("query") / "CURRENT").exists()


@pytest.mark.night
@pytest.mark.parametrize("failpoint", cases(["restore.file:2", "restore.renamed"], by_day=["restore.file:2"]))
async def test_a_judge_that_is_killed_while_it_restores_leaves_no_half_state(
    judged: Settings, failpoint: str
) -> None:
    lose(judged)
    await killed_command(judged, failpoint, "judge")
    assert directory(judged).exists() is (failpoint == "restore.renamed")
    logs = await deliver_again(judged)
    assert len(restored(logs)) == (failpoint != "restore.renamed")
    assert not list(directory(judged).parent.glob("neardup-*"))
    await all_once(judged)

"""An empty state directory is restored from the newest checkpoint that fits, and no page is judged twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stream.checkpoints.known_damage import note_damage
from stream.checkpoints.manifest import CheckpointFile, Manifest, file_object
from stream.checkpoints.restoring import restore
from stream.errors import DamagedStateError
from stream.roles.judge.role import JudgeRole
from stream.settings import Settings
from tests.kafka.judge_helpers import (
    append,
    decided,
    once,
    part,
    places,
    record,
    verdicts,
)
from tests.kafka.judged_rounds import (
    ROUND,
    add,
    all_once,
    catalogue,
    change,
    deliver_again,
    directory,
    judge_rounds,
    kept,
    lose,
    refused,
    restored,
    stored,
    with_checkpoints,
)
from tests.kafka.worker_helpers import create, running
from tests.waiting import until

pytestmark = pytest.mark.broker

ROUNDS = 3
PAGES = ROUNDS * ROUND


@pytest.fixture
async def judged(settings: Settings, tmp_path: Path) -> Settings:
    """A deployment that judged rounds of pages, with a checkpoint after each, and was stopped."""
    settings = with_checkpoints(settings, tmp_path / "objects")
    await create(settings)
    for number in range(ROUNDS):
        await judge_rounds(settings, number, number + 1)
    assert len(kept(settings)) == ROUNDS
    return settings


async def test_a_lost_state_is_restored_and_goes_on(judged: Settings) -> None:
    newest = kept(judged)[0]
    lose(judged)
    logs = await deliver_again(judged, ROUNDS)
    assert restored(logs) == [str(newest.name)]
    assert not refused(logs)
    await all_once(judged, ROUNDS)
    async with running(JudgeRole(judged)):  # a new directory has checkpoints of its own
        await until(lambda: len({each.directory for each in kept(judged)}) == 2)


async def test_what_does_not_fit_is_named_and_the_next_older_is_restored(judged: Settings) -> None:
    newest, middle, oldest = kept(judged)
    for spoiled in (newest, middle):
        only = (
            catalogue(judged).read_once(spoiled.name).digests
            - catalogue(judged).read_once(oldest.name).digests
        )
        stored(judged, file_object(newest.journal, min(only))).write_bytes(b"damaged")
    lose(judged)
    logs = await deliver_again(judged, ROUNDS)
    assert restored(logs) == [str(oldest.name)]
    first, second = refused(logs)
    assert f"checkpoint {newest.name}: " in first
    assert f"checkpoint {middle.name}: " in second
    assert " is damaged: it is not what was uploaded" in second
    await all_once(judged, ROUNDS)


@pytest.mark.night
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", 1), ("cluster", "elsewhere"), ("scheme", "0" * 16), ("options", "other"),
        ("generation", 999), ("decided", 10**6), ("last", bytes(16)),
    ],
)  # fmt: skip
async def test_a_checkpoint_of_something_else_is_refused_by_name(
    judged: Settings, field: str, value: object
) -> None:
    """If none is left, the state is built from the topics, which have everything."""
    for each in kept(judged):
        change(judged, each, **{field: value})
    lose(judged)
    logs = await deliver_again(judged, ROUNDS)
    assert not restored(logs)
    reasons = refused(logs)
    assert len(reasons) == 3
    what = {"decided": "decisions up to 1000000, but it ends at", "last": "whose record"}
    assert all(what.get(field, f"has {field} {value}, but") in each for each in reasons)
    await all_once(judged, ROUNDS)


@pytest.mark.night
async def test_a_checkpoint_ahead_of_the_journal_is_refused(judged: Settings) -> None:
    newest = kept(judged)[0]
    add(judged, newest, applied=10**6)
    lose(judged)
    logs = await deliver_again(judged, ROUNDS)
    assert restored(logs) == [str(newest.name)]
    (reason,) = refused(logs)
    assert f"has applied topic {judged.namespace}.journal up to 1000000, but it ends at" in reason


@pytest.mark.night
async def test_a_damaged_state_is_restored(judged: Settings) -> None:
    (directory(judged) / "CURRENT").unlink()
    mending = judged.model_copy(update={"rebuild_damaged": True})
    logs = await deliver_again(mending, ROUNDS)
    assert [each["event"] for each in logs if each["event"] == "state_damaged"]
    assert len(restored(logs)) == 1
    await all_once(judged, ROUNDS)


@pytest.mark.night
async def test_a_checkpoint_of_a_damaged_state_is_not_used(judged: Settings) -> None:
    """Its files are what was uploaded, but RocksDB cannot open them: the next older one is restored."""
    newest, older, _ = kept(judged)
    lacking = added_table(newest, older)
    change(judged, newest, files=[each for each in newest.files if each != lacking])
    lose(judged)
    logs = await deliver_again(judged, ROUNDS)
    assert restored(logs)[-1] == str(older.name)
    assert any(lacking.name in each for each in refused(logs))
    assert directory(judged).exists()
    await all_once(judged, ROUNDS)


def added_table(newest: Manifest, older: Manifest) -> CheckpointFile:
    """A table file that an older checkpoint has not."""
    before = {each.digest for each in older.files}
    return next(e for e in newest.files if e.digest not in before and e.name.endswith(".sst"))


@pytest.mark.night
async def test_a_file_that_was_uploaded_damaged_is_not_restored_again(judged: Settings) -> None:
    newest, older, _ = kept(judged)
    path, file = directory(judged), added_table(newest, older)
    note_damage(path, DamagedStateError(f"state directory {path}: damaged: {file.name}: Corruption: a block"))
    shutil.rmtree(path)
    logs = await deliver_again(judged, ROUNDS)
    assert restored(logs) == [str(older.name)]
    (reason,) = refused(logs)
    assert f"checkpoint {newest.name}: has {file.name} as it was when it was found damaged" in reason
    await all_once(judged, ROUNDS)


@pytest.mark.night
async def test_a_checkpoint_is_not_restored_again_if_the_damage_names_no_file(judged: Settings) -> None:
    newest, older, _ = kept(judged)
    path = directory(judged)
    for _ in range(2):
        shutil.rmtree(path)
        restore(catalogue(judged), newest, path)
        note_damage(path, DamagedStateError(f"state directory {path}: damaged: 3 anchors of 4"))
    shutil.rmtree(path)
    logs = await deliver_again(judged, ROUNDS)
    assert restored(logs) == [str(older.name)]
    (reason,) = refused(logs)
    assert f"checkpoint {newest.name}: was restored and then found damaged" in reason
    await all_once(judged, ROUNDS)


@pytest.mark.night
async def test_leader_and_standby_both_make_checkpoints_and_either_ones_are_restored(
    judged: Settings, tmp_path: Path
) -> None:
    other = judged.model_copy(update={"state_dir": tmp_path / "other"})
    async with running(JudgeRole(judged)), running(JudgeRole(other)):
        appended = await append(judged, record(part(0, PAGES, PAGES + 1)))
        await decided(judged, appended)
        end = appended[-1].offset + 1
        await until(lambda: len({each.directory for each in kept(judged) if each.applied == end}) == 2)
    lose(judged)
    async with running(JudgeRole(judged)):
        await decided(judged, await append(judged, record(part(0, PAGES + 1, PAGES + 2))))
    assert places(await verdicts(judged)) == once(part(0, 0, PAGES + 2))

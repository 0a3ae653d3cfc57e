"""A damaged state or a full disk never changes or repeats verdicts, and can be repaired."""

from __future__ import annotations

import asyncio
import gc
import random
import shutil
from pathlib import Path

import pytest

from stream.errors import EXIT_DISK, DamagedStateError, DiskError, StaleError
from stream.roles.judge.batch_in_flight import BatchInFlight
from stream.roles.judge.role import JudgeRole
from stream.settings import Settings
from stream.states.scrubs import last_scrub
from stream.tables.store.rocks import Store
from tests.kafka.judge_helpers import append, error_of, part, record, refusal_of
from tests.kafka.judged_rounds import ROUND, all_once, deliver_again, directory, judge_rounds
from tests.kafka.worker_helpers import create
from tests.unit.test_state_disk import full
from tests.waiting import until

pytestmark = pytest.mark.broker

ROUNDS, FLIPS = 3, 3
PAGES = ROUNDS * ROUND


@pytest.fixture
async def judged(settings: Settings) -> Settings:
    """A deployment that judged pages in several flushes, and was stopped."""
    settings = settings.model_copy(
        update={"tables_generation": 16, "tables_memory": 0, "flush_seconds": 0.2, "rebuild_damaged": False}
    )
    await create(settings)
    for number in range(ROUNDS):
        await judge_rounds(settings, number, number + 1)
    return settings


def spoil(path: Path, rng: random.Random) -> Path:
    """Flip a bit in the first block of a file that is read at every start."""
    files = sorted(path.glob("*.sst"))
    rng.shuffle(files)
    for file in files:
        whole = file.read_bytes()
        content = bytearray(whole)
        content[rng.randrange(100)] ^= 1 << rng.randrange(8)
        file.write_bytes(content)
        try:
            with Store(path, 1 << 20, read_only=True) as store:
                list(store.scan("default"))
        except DamagedStateError:
            return file
        file.write_bytes(whole)
    raise AssertionError("no file is of the default family")


async def test_a_damaged_state_is_refused_and_rebuilt_and_no_page_is_judged_twice(judged: Settings) -> None:
    path, rng = directory(judged), random.Random(3)
    whole = path.with_name("whole")
    shutil.copytree(path, whole)
    for _ in range(FLIPS):
        shutil.rmtree(path)
        shutil.copytree(whole, path)
        file = spoil(path, rng)
        said = await refusal_of(JudgeRole(judged), DamagedStateError)
        assert f"state directory {path}: damaged: {file.name}" in said
    mending = judged.model_copy(update={"rebuild_damaged": True})
    logs = await deliver_again(mending, ROUNDS)
    (event,) = [each for each in logs if each["event"] == "state_damaged"]
    moved = Path(event["moved_to"])
    assert moved.parent == path.parent
    assert (moved / file.name).read_bytes() != (whole / file.name).read_bytes()
    await all_once(judged, ROUNDS)


@pytest.mark.night
async def test_damage_that_is_met_later_ends_the_judge_and_the_next_one_rebuilds(
    judged: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    mending = judged.model_copy(update={"rebuild_damaged": True})
    path = directory(judged)
    with monkeypatch.context() as patch:
        patch.setattr(BatchInFlight, "decide", _meets_damage)
        await append(judged, record(part(0, PAGES, PAGES + 1)))
        assert isinstance(await error_of(JudgeRole(judged)), DamagedStateError)
        assert path.exists()
        assert isinstance(await error_of(JudgeRole(mending)), StaleError)
        assert not path.exists()
    await deliver_again(mending, ROUNDS)
    await all_once(judged, ROUNDS)


@pytest.mark.night
async def test_damage_that_nobody_reads_is_found_by_a_scrub(judged: Settings) -> None:
    path, role = directory(judged), JudgeRole(judged.model_copy(update={"scrub_hours": 1e-6}))
    ending = asyncio.create_task(error_of(role))
    await until(lambda: last_scrub(path))
    assert role.watch.metrics.damaged_files._value.get() == 0
    file = await asyncio.to_thread(spoil_in_place, path)
    error = await ending
    assert isinstance(error, DamagedStateError), repr(error)
    assert f"state directory {path}: damaged: {file.name}: " in str(error)
    assert role.watch.metrics.damaged_files._value.get() == 1
    assert str(await error_of(JudgeRole(judged))) == str(error)  # without another scrub
    mending = judged.model_copy(update={"rebuild_damaged": True})
    await deliver_again(mending, ROUNDS)
    await all_once(judged, ROUNDS)


def spoil_in_place(path: Path) -> Path:
    """Flip a bit of a file that a judge has open and, without new pages, does not read."""
    file = max(path.glob("*.sst"), key=lambda each: each.stat().st_size)
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    with file.open("r+b") as spoiled:
        spoiled.write(content)
    return file


@pytest.mark.night
async def test_a_directory_that_is_deleted_under_a_judge_ends_it_by_name_and_is_made_anew(
    judged: Settings,
) -> None:
    path, role = directory(judged), JudgeRole(judged)
    ending = asyncio.create_task(error_of(role))
    await until(lambda: role.watch.metrics.leading._value.get())
    await asyncio.to_thread(shutil.rmtree, path)
    await append(judged, record(part(0, PAGES, PAGES + 1)))
    error = await ending
    assert isinstance(error, DiskError), repr(error)
    assert str(error).startswith(f"directory {path}: it is gone")
    await deliver_again(judged, ROUNDS)
    await all_once(judged, ROUNDS)


async def _meets_damage(*_: object) -> None:
    raise DamagedStateError("a block that nobody had read")


@pytest.mark.night
@pytest.mark.parametrize("largest", [600, 3000])
async def test_a_full_disk_ends_the_judge_and_nothing_is_lost_or_judged_twice(
    judged: Settings, largest: int, caplog: pytest.LogCaptureFixture
) -> None:
    await append(judged, record(part(0, PAGES, PAGES + 1)))
    with full(largest):
        error = await error_of(JudgeRole(judged))
    assert isinstance(error, DiskError), repr(error)
    assert error.exit_code == EXIT_DISK
    assert f"{judged.state_dir}" in str(error) or "neardup-rehearsal" in str(error)
    del error
    gc.collect()
    assert "never retrieved" not in caplog.text
    assert "Unclosed" not in caplog.text
    await deliver_again(judged, ROUNDS)
    await all_once(judged, ROUNDS)

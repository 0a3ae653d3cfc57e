"""A judge's state that is lost or damaged is restored or built anew, and no page is judged twice.
`tests/life_of_states.py` shows what is restored, refused or set aside."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stream.errors import DamagedStateError
from stream.roles.judge.role import JudgeRole
from stream.settings import Settings
from stream.tables.store.rocks import Store
from tests.kafka.judge_helpers import refusal_of
from tests.kafka.judged_rounds import (
    all_once,
    deliver_again,
    directory,
    judge_rounds,
    kept,
    lose,
    refused,
    restored,
    with_checkpoints,
)
from tests.kafka.worker_helpers import create, running
from tests.waiting import until

pytestmark = pytest.mark.broker

ROUNDS = 3


async def judge_all(settings: Settings) -> None:
    """Judge pages in several flushes, with a checkpoint after each if there is a store."""
    await create(settings)
    for number in range(ROUNDS):
        await judge_rounds(settings, number, number + 1)


async def test_a_lost_state_is_restored_and_goes_on(settings: Settings, tmp_path: Path) -> None:
    settings = with_checkpoints(settings, tmp_path / "objects")
    await judge_all(settings)
    newest, *_ = found = kept(settings)
    assert len(found) == ROUNDS
    lose(settings)
    logs = await deliver_again(settings, ROUNDS)
    assert (restored(logs), refused(logs)) == ([str(newest.name)], [])
    await all_once(settings, ROUNDS)
    async with running(JudgeRole(settings)):  # a new directory has checkpoints of its own
        await until(lambda: len({each.directory for each in kept(settings)}) == 2)


async def test_a_damaged_state_is_refused_and_rebuilt_and_no_page_is_judged_twice(settings: Settings) -> None:
    settings = settings.model_copy(
        update={"tables_generation": 16, "tables_memory": 0, "flush_seconds": 0.2, "rebuild_damaged": False}
    )
    await judge_all(settings)
    path = directory(settings)
    whole = path.with_name("whole")
    shutil.copytree(path, whole)
    file = spoil(path)
    said = await refusal_of(JudgeRole(settings), DamagedStateError)
    assert f"state directory {path}: damaged: {file.name}" in said
    logs = await deliver_again(settings.model_copy(update={"rebuild_damaged": True}), ROUNDS)
    (event,) = [each for each in logs if each["event"] == "state_damaged"]
    moved = Path(event["moved_to"])
    assert moved.parent == path.parent
    assert (moved / file.name).read_bytes() != (whole / file.name).read_bytes()
    await all_once(settings, ROUNDS)


def spoil(path: Path) -> Path:
    """Flip a bit in the first block of a file that is read at every start."""
    for file in path.glob("*.sst"):
        whole = file.read_bytes()
        file.write_bytes(whole[:50] + bytes([whole[50] ^ 1]) + whole[51:])
        try:
            with Store(path, 1 << 20, read_only=True) as store:
                list(store.scan("default"))
        except DamagedStateError:
            return file
        file.write_bytes(whole)
    raise AssertionError("no file is of the default family")

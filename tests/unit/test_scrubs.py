"""Scrubs beside a judge: damage is named and refused, and no scrub outlives the process that started it."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from stream.checkpoints.known_damage import RESTORED, known_damage, note_damage
from stream.errors import DamagedStateError
from stream.states.scrubs import Scrubs, last_scrub, refuse_known_damage
from stream.tables.store.rocks import Store
from tests.waiting import until

OFTEN = 1e-6
"""Hours: as soon as one ends, the next one begins."""
ROOT = Path(__file__).parents[2]


class ScrubCalls(list[tuple[float, int]]):
    """Records when scrubs ended, and the number of damaged files."""

    def __call__(self, ended: float, damaged: int) -> None:
        self.append((ended, damaged))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with Store(tmp_path / "judge", 1 << 20) as made:
        batch = made.batch()
        for number in range(2000):
            batch.put("log", number.to_bytes(8, "big"), bytes([number % 256]) * 100)
        made.write(batch)
    return tmp_path / "judge"


def sst_of(directory: Path) -> Path:
    (file,) = directory.glob("*.sst")
    return file


def spoil(directory: Path) -> Path:
    """Flip a bit in place, as a disk does."""
    file = sst_of(directory)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    with file.open("r+b") as spoiled:
        spoiled.write(content)
    return file


async def test_a_whole_state_is_read_again_and_again(directory: Path) -> None:
    told = ScrubCalls()
    with capture_logs() as logs:
        async with Scrubs(directory, OFTEN, told).beside():
            await until(lambda: len(told) > 2)
    assert {damaged for _, damaged in told} == {0}
    size = sst_of(directory).stat().st_size
    said = [each for each in logs if each["event"] == "scrubbed"]
    assert {(each["bytes"], each["damaged"]) for each in said} == {(size, None)}
    last = last_scrub(directory)
    assert last is not None
    assert last.ended >= told[-1][0]
    refuse_known_damage(directory)


async def test_a_clean_scrub_ends_what_is_held_against_the_restored_checkpoint(directory: Path) -> None:
    """Damage that names no file is the checkpoint's only until all of the state was read."""
    restored, told = directory / RESTORED, ScrubCalls()
    restored.write_text("a checkpoint")
    async with Scrubs(directory, OFTEN, told).beside():
        await until(lambda: not restored.exists())
    note_damage(directory, DamagedStateError("of no file"))
    assert known_damage(directory) == set()
    restored.write_text("a checkpoint")
    spoil(directory)
    async with Scrubs(directory, OFTEN, told).beside():
        await until(lambda: told[-1][1])
    assert restored.exists()


async def test_damage_is_named_and_refused_also_at_the_next_start(directory: Path) -> None:
    file, told = spoil(directory), ScrubCalls()
    scrubs = Scrubs(directory, OFTEN, told)
    with capture_logs() as logs:
        async with scrubs.beside():
            await until(lambda: told and told[-1][1])
            with pytest.raises(DamagedStateError, match=f"{directory}: damaged: {file.name}: "):
                await until(scrubs.refuse_damage)
    (said,) = [each for each in logs if each["event"] == "scrubbed"]
    assert (said["log_level"], said["damaged"]) == ("error", file.name)
    with pytest.raises(DamagedStateError, match=f"{directory}: damaged: {file.name}: "):
        refuse_known_damage(directory)
    await asyncio.to_thread(replace, file)
    refuse_known_damage(directory)


def replace(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(file.read_bytes())
    other.rename(file)


async def test_a_judge_that_starts_again_knows_when_the_last_scrub_was(directory: Path) -> None:
    told = ScrubCalls()
    async with Scrubs(directory, OFTEN, told).beside():
        await until(lambda: len(told) > 1)
    last, again = last_scrub(directory), ScrubCalls()
    assert last is not None
    async with Scrubs(directory, 1000, again).beside():
        await until(lambda: again)
    assert again == [(last.ended, 0)]


async def test_no_scrub_is_asked_for_by_0(directory: Path) -> None:
    scrubs = Scrubs(directory, 0, ScrubCalls())
    async with scrubs.beside():
        scrubs.refuse_damage()
    assert last_scrub(directory) is None


async def test_a_child_that_fails_says_nothing_of_the_state(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream.tables.store.scrub_child.__name__", "stream.no_such_module")
    told, scrubs = ScrubCalls(), Scrubs(directory, OFTEN, ScrubCalls())
    with capture_logs() as logs:
        async with scrubs.beside():
            await until(lambda: [each for each in logs if each["event"] == "scrub_failed"])
            scrubs.refuse_damage()
    assert "No module named" in logs[0]["error"]
    assert not told


def hung(directory: Path) -> Path:
    """A state directory whose first file is a pipe, so that reading it blocks."""
    pipe = directory / "CURRENT"
    pipe.unlink()
    os.mkfifo(pipe)
    return pipe


def writer(pipe: Path) -> int | None:
    """The pipe to write to; None while nobody reads it."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None


def nobody_reads(end: int) -> bool:
    try:
        os.write(end, b"x")
    except BrokenPipeError:
        return True
    except BlockingIOError:
        return False
    return False


async def reached(pipe: Path) -> int:
    found: list[int] = []

    def opened() -> bool:
        end = writer(pipe)
        if end is not None:
            found.append(end)
        return end is not None

    await until(opened)
    return found[0]


async def test_a_scrub_that_hangs_holds_nothing_up(directory: Path) -> None:
    pipe = hung(directory)
    async with Scrubs(directory, OFTEN, ScrubCalls()).beside():
        end = await reached(pipe)
    assert nobody_reads(end)
    os.close(end)


async def test_a_judge_that_is_killed_leaves_no_scrub_behind(directory: Path) -> None:
    pipe = hung(directory)
    script = (
        "import asyncio, sys; from pathlib import Path; from stream.states.scrubs import Scrubs\n"
        "async def main():\n"
        f"    async with Scrubs(Path(sys.argv[1]), {OFTEN}, lambda *_: None).beside():\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    judge = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(directory), env=environment
    )
    end = await reached(pipe)
    judge.kill()
    await judge.wait()
    await until(lambda: nobody_reads(end))
    os.close(end)

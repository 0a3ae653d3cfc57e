"""Killed anywhere, reopened and replayed from the applied point: the tables are as if nothing happened."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stream import failpoints
from stream.tables.design import Design
from stream.tables.search.probing import SearchOptions
from stream.tables.store.rocks import DEFAULT, Store
from stream.tables.tables import Tables

pytestmark = pytest.mark.chaos

APPLIED = b"test/applied"
TURNS = 40
ROWS = 50
GENERATION = 170


def open_tables(store: Store, memory: int, generation: int = GENERATION) -> Tables:
    return Tables(
        store, Design(5, 2), SearchOptions(4, 2, distance=12, cap=64), memory=memory, generation=generation
    )


def turn(number: int) -> np.ndarray:
    """Rows of one turn: a function of its number alone, near rows of earlier turns."""
    rng = np.random.default_rng(number)
    near = np.random.default_rng(number // 2).integers(0, 1 << 64, ROWS, dtype=np.uint64)
    return near ^ (np.uint64(1) << rng.integers(0, 64, ROWS, dtype=np.uint64))


def uncertain(number: int) -> np.ndarray:
    rng = np.random.default_rng([number, 1])
    return np.argsort(rng.random((ROWS, 64)), axis=1)[:, :32].astype(np.uint8)


def replay(store: Store, tables: Tables, *, report: bool = False) -> None:
    """Apply the turns not yet applied, as a judge would: one batch a turn, a flush now and then."""
    stored = store.get(DEFAULT, [APPLIED])[0]
    for number in range(int.from_bytes(stored or b"", "big"), TURNS):
        batch = store.batch()
        tables.insert(batch, turn(number), {number % ROWS: 0b1001, 7: number % 1024})
        if number:
            tables.kill(batch, np.array([number * ROWS // 2, number * ROWS - 1]))
        batch.put(DEFAULT, APPLIED, (number + 1).to_bytes(4, "big"))
        store.write(batch)
        tables.maintain(wait=number % 3 == 0)
        if number % 4 == 3:
            store.flush()
        if report:
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()
    tables.maintain(wait=True)
    store.flush()


def outcome(store: Store, tables: Tables) -> tuple[str, list[object]]:
    """The digest and the candidates of all turns."""
    answers: list[object] = []
    for number in range(TURNS):
        found = tables.search(turn(number), uncertain(number))
        assert found.bucket_sizes is not None
        answers.append(
            [part.tolist() for part in (found.row, found.anchor, found.distance, found.bucket_sizes)]
        )
    return store.digest(), answers


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[object]]:
    with Store(tmp_path_factory.mktemp("undisturbed"), 10, 8 << 20) as store:
        tables = open_tables(store, 1 << 30)
        replay(store, tables)
        assert tables.stats.generations == TURNS * ROWS // GENERATION
        found = outcome(store, tables)
        tables.close()
    return found


def child(path: Path, memory: int, failpoint: str, generation: int = GENERATION) -> subprocess.Popen[bytes]:
    root = Path(__file__).parents[2]
    environment = os.environ | {failpoints.VARIABLE: failpoint, "PYTHONPATH": str(root)}
    return subprocess.Popen(
        [sys.executable, __file__, str(path), str(memory), str(generation)],
        env=environment,
        stdout=subprocess.PIPE,
    )


def check_after_crash(
    path: Path, memory: int, undisturbed: tuple[str, list[object]], generation: int = GENERATION
) -> None:
    with Store(path, 10, 8 << 20) as store:
        tables = open_tables(store, memory, generation)
        replay(store, tables)
        assert outcome(store, tables) == undisturbed
        tables.close()


FAILPOINTS = [
    "flush", "flush:3", "freeze.build", "freeze.build:7", "freeze.build:35", "freeze.ingest",
    "freeze.ingest:6", "freeze.ingest:27", "freeze.ingest:95", "freeze.meta", "freeze.meta:2",
    "freeze.meta:9", "freeze.meta:10", "flush:9", "freeze.reclaim", "freeze.reclaim:10",
]  # fmt: skip


@pytest.mark.parametrize("memory", [0, 1 << 30])
@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_killed_at_a_failpoint_and_replayed_is_the_same(
    failpoint: str, memory: int, tmp_path: Path, undisturbed: tuple[str, list[object]]
) -> None:
    with child(tmp_path, memory, failpoint) as process:
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    check_after_crash(tmp_path, memory, undisturbed)


@pytest.mark.parametrize("seed", range(6))
def test_killed_at_any_moment_and_replayed_is_the_same(
    seed: int, tmp_path: Path, undisturbed: tuple[str, list[object]]
) -> None:
    memory = 0 if seed % 2 else 12 * 56 * 400
    last = random.Random(seed).randrange(TURNS - 4)
    with child(tmp_path, memory, "") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) == last:
                process.kill()
                break
    assert process.returncode == -signal.SIGKILL
    check_after_crash(tmp_path, memory, undisturbed)


def test_killed_again_and_again_is_the_same(tmp_path: Path, undisturbed: tuple[str, list[object]]) -> None:
    for failpoint in ("flush:2", "freeze.ingest:13", "freeze.meta:2", "freeze.ingest:5", "flush:4"):
        with child(tmp_path, 0, failpoint) as process:
            process.communicate()
        assert process.returncode == -signal.SIGKILL
    check_after_crash(tmp_path, 0, undisturbed)


@pytest.mark.parametrize("failpoint", ["freeze.meta:74", "freeze.reclaim:85"])
def test_killed_while_merged_runs_are_merged_is_the_same(failpoint: str, tmp_path: Path) -> None:
    generation = TURNS * ROWS // 66  # 64 of them are one run of level 2
    with Store(tmp_path / "undisturbed", 10, 8 << 20) as store:
        tables = open_tables(store, 0, generation)
        replay(store, tables)
        assert (tables.stats.generations, tables.stats.runs) == (66, 3)
        undisturbed = outcome(store, tables)
        tables.close()
    with child(tmp_path / "killed", 0, failpoint, generation) as process:
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    check_after_crash(tmp_path / "killed", 0, undisturbed, generation)
    with Store(tmp_path / "killed", 10, 8 << 20) as store:  # and what was merged takes no disk
        tables = open_tables(store, 0, generation)
        tables.maintain(wait=True)
        # Only keys of runs of level 1 begin with that byte.
        assert 1 not in {bytes(file["start_key"])[0] for file in store._db.live_files()}
        tables.close()


if __name__ == "__main__":
    opened = Store(Path(sys.argv[1]), 10, 8 << 20)
    replay(opened, open_tables(opened, int(sys.argv[2]), int(sys.argv[3])), report=True)

"""Killed anywhere, reopened and replayed from the applied point: the tables are as if nothing happened."""

from __future__ import annotations

import random
import signal
from dataclasses import dataclass
from itertools import product
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

from stream.tables.runs.tier import RUN
from stream.tables.store.rocks import DEFAULT, LOG, Store
from stream.tables.tables import Tables
from tests import kills
from tests.first_numbers import LATE
from tests.night import cases
from tests.property.indexed import Case
from tests.property.test_first_raised import check_store

pytestmark = pytest.mark.chaos

APPLIED = b"test/applied"
Outcome = tuple[str, list[object]]
TURNS = 40
ROWS = 50
GENERATION, OF_RESERVES = 170, 34
"""Eleven generations, of which eight are merged."""


@dataclass(frozen=True)
class Setting:
    """How the tables are opened, and what is inserted."""

    generation: int = GENERATION
    reserves: bool = False
    """Whether keys are of minima, and most anchors are in reserves."""
    first: int = 0
    """Number of the first anchor."""
    window: int = 0
    """If not 0, all anchors but the last so many go after each turn."""

    @property
    def case(self) -> Case:
        return Case(
            distance=30 if self.reserves else 12,
            generation=self.generation,
            first=self.first,
            reserves=self.reserves,
        )

    def open(self, store: Store) -> Tables:
        return self.case.open(store, windowed=self.window > 0)

    def rows(self, number: int) -> np.ndarray:
        return turn(number)[: ROWS // 5] if self.reserves else turn(number)

    def words(self, number: int) -> np.ndarray | None:
        """Keys with minima of two values each."""
        if not self.reserves:
            return None
        bits = self.rows(number)[:, None] >> np.arange(8, dtype=np.uint64)
        places = [1 | 1 << 19 | 1 << 38 | 1 << 57] * 3 + [1 | 1 << 16 | 1 << 32 | 1 << 48] * 5
        return bits & np.array(places, np.uint64)

    def skipped(self, number: int) -> dict[int, int]:
        if not self.reserves:
            return {number % ROWS: 0b1001, 7: number % 1024}
        masks = self.case.masks(np.random.default_rng(number), 9, 1.0)
        return {row: mask for row, mask in enumerate(masks) if mask}

    @property
    def frozen(self) -> int:
        """Generations of anchors."""
        return TURNS * len(self.rows(0)) // self.generation


def turn(number: int) -> np.ndarray:
    """Rows of one turn: a function of its number alone, near rows of earlier turns."""
    rng = np.random.default_rng(number)
    near = np.random.default_rng(number // 2).integers(0, 1 << 64, ROWS, dtype=np.uint64)
    return near ^ (np.uint64(1) << rng.integers(0, 64, ROWS, dtype=np.uint64))


def replay(store: Store, tables: Tables, setting: Setting, report: Connection | None = None) -> None:
    """Apply the turns not yet applied, as a judge would: one batch a turn, a flush now and then."""
    stored = store.get(DEFAULT, [APPLIED])[0]
    for number in range(int.from_bytes(stored or b"", "big"), TURNS):
        batch = store.batch()
        rows = setting.rows(number)
        tables.insert(batch, rows, setting.skipped(number), setting.words(number))
        if number:
            dying = setting.first + np.array([number * len(rows) // 2, number * len(rows) - 1])
            tables.kill(batch, dying[dying >= tables.first])
        if setting.window:
            tables.raise_first(batch, max(tables.first, tables.count - setting.window))
        batch.put(DEFAULT, APPLIED, (number + 1).to_bytes(4, "big"))
        store.write(batch)
        tables.maintain(wait=number % 3 == 0)
        if number % 4 == 3:
            store.flush()
        if report:
            report.send(number)
    tables.maintain(wait=True)
    store.flush()


def outcome(store: Store, tables: Tables, setting: Setting) -> Outcome:
    """The digest, of what is left and without runs, and the candidates of all turns."""
    answers: list[object] = []
    for number in range(TURNS):
        rows = setting.rows(number)
        found = tables.search(rows, setting.words(number))
        assert found.bucket_sizes is not None
        columns = (found.row, found.anchor, found.distance, found.bucket_sizes, *found.reserves)
        answers.append([part.tolist() for part in columns])
    return store.digest({DEFAULT: b"", LOG: tables.start}, leave_out=RUN), answers


@pytest.fixture(scope="module", params=[False, True], ids=["pairs", "reserves"])
def reserves(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module", params=[0, LATE], ids=["", "late"])
def first(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def undisturbed(reserves: bool, first: int, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    setting = Setting(OF_RESERVES if reserves else GENERATION, reserves, first)
    with Store(tmp_path_factory.mktemp("undisturbed"), 8 << 20) as store:
        tables = setting.open(store)
        replay(store, tables, setting)
        assert tables.stats.generations == setting.frozen
        found = outcome(store, tables, setting)
        tables.close()
    return found


def replay_in(path: Path, setting: Setting, report: Connection | None = None) -> None:
    store = Store(path, 8 << 20)
    replay(store, setting.open(store), setting, report)


def check_after_crash(path: Path, setting: Setting, undisturbed: Outcome) -> None:
    with Store(path, 8 << 20) as store:
        tables = setting.open(store)
        replay(store, tables, setting)
        assert outcome(store, tables, setting) == undisturbed
        tables.close()


FAILPOINTS = [
    "flush", "flush:3", "freeze.build", "freeze.build:7", "freeze.build:35", "freeze.ingest",
    "freeze.ingest:3", "freeze.ingest:9", "freeze.meta", "freeze.meta:2",
    "freeze.meta:9", "freeze.meta:10", "flush:9", "freeze.reclaim",
]  # fmt: skip
BY_DAY = [(False, "flush:3"), (False, "freeze.ingest:9"), (False, "freeze.reclaim"), (True, "freeze.build:9")]


@pytest.mark.parametrize(
    ("reserves", "failpoint"), cases(product([False, True], FAILPOINTS), by_day=BY_DAY), indirect=["reserves"]
)
@pytest.mark.parametrize("first", [0], indirect=True)
def test_killed_at_a_failpoint_and_replayed_is_the_same(
    failpoint: str, reserves: bool, tmp_path: Path, undisturbed: Outcome
) -> None:
    setting = Setting(OF_RESERVES if reserves else GENERATION, reserves)
    kills.killed(failpoint, replay_in, tmp_path, setting)
    check_after_crash(tmp_path, setting, undisturbed)


@pytest.mark.parametrize("seed", cases(range(6), by_day=[0]))
@pytest.mark.parametrize("first", [0], indirect=True)
def test_killed_at_any_moment_and_replayed_is_the_same(
    seed: int, reserves: bool, tmp_path: Path, undisturbed: Outcome
) -> None:
    setting = Setting(OF_RESERVES if reserves else GENERATION, reserves)
    last = random.Random(seed).randrange(TURNS - 4)
    reports, report = Pipe(duplex=False)
    process = kills.started(replay_in, tmp_path, setting, report)
    while reports.recv() < last:
        pass
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    check_after_crash(tmp_path, setting, undisturbed)


@pytest.mark.night
def test_killed_again_and_again_is_the_same(
    reserves: bool, first: int, tmp_path: Path, undisturbed: Outcome
) -> None:
    setting = Setting(OF_RESERVES if reserves else GENERATION, reserves, first)
    for failpoint in ("flush:2", "freeze.ingest:2", "freeze.meta:2", "freeze.ingest:3", "flush:4"):
        kills.killed(failpoint, replay_in, tmp_path, setting)
    check_after_crash(tmp_path, setting, undisturbed)


@pytest.mark.night
@pytest.mark.parametrize("failpoint", ["freeze.meta:74", "freeze.reclaim:9"])
def test_killed_while_merged_runs_are_merged_is_the_same(failpoint: str, tmp_path: Path) -> None:
    setting = Setting(TURNS * ROWS // 66)  # 64 of them are one run of level 2
    with Store(tmp_path / "undisturbed", 8 << 20) as store:
        tables = setting.open(store)
        replay(store, tables, setting)
        assert (tables.stats.generations, tables.stats.runs) == (66, 3)
        undisturbed = outcome(store, tables, setting)
        tables.close()
    kills.killed(failpoint, replay_in, tmp_path / "killed", setting)
    check_after_crash(tmp_path / "killed", setting, undisturbed)
    with Store(tmp_path / "killed", 8 << 20) as store:  # and what was merged takes no disk
        tables = setting.open(store)
        tables.maintain(wait=True)
        # Only keys of runs of level 1 begin with that byte.
        assert 1 not in {bytes(file["start_key"])[0] for file in store._db.live_files()}
        tables.close()


WINDOW_FAILPOINTS = [
    (False, ["flush:2", "drop.run", "freeze.meta:2", "drop.run:2", "flush:3"]),
    (False, ["drop.run:6", "drop.pages:2", "freeze.ingest:9", "freeze.build:5"]),
    (False, ["freeze.meta:20", "freeze.ingest:3", "drop.pages", "freeze.reclaim", "drop.run:3"]),
    (True, ["drop.run", "flush:2", "drop.run:3", "freeze.meta:3", "freeze.ingest:9"]),
    (True, ["drop.run:3", "freeze.build:9", "freeze.meta", "drop.pages"]),
]
"""Of pairs or reserves."""
WINDOWED = {False: (20, 400), True: (5, 100)}
"""Generation and window, of pairs and of reserves."""


@pytest.fixture(scope="module")
def undisturbed_window(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Outcome]:
    found = dict[bool, Outcome]()
    for reserves, (generation, window) in WINDOWED.items():
        setting = Setting(generation, reserves, window=window)
        with Store(tmp_path_factory.mktemp("undisturbed"), 8 << 20) as store:
            tables = setting.open(store)
            replay(store, tables, setting)
            found[reserves] = outcome(store, tables, setting)
            assert tables.first == TURNS * len(setting.rows(0)) - window
            tables.close()
    return found


@pytest.mark.parametrize("number", cases(range(len(WINDOW_FAILPOINTS)), by_day=[1]))
def test_killed_while_the_first_anchors_go_is_the_same(
    number: int, tmp_path: Path, undisturbed_window: dict[bool, Outcome]
) -> None:
    """Runs of what is gone are built, merged and dropped at other times after a crash."""
    reserves, failpoints = WINDOW_FAILPOINTS[number]
    setting = Setting(WINDOWED[reserves][0], reserves, window=WINDOWED[reserves][1])
    killed = 0
    for failpoint in failpoints:
        code, _, error = kills.end_of(failpoint, replay_in, tmp_path / "killed", setting)
        assert code in (-signal.SIGKILL, 0), error.decode()
        killed += code != 0  # what was flushed before may leave too little to do
    assert killed > 1
    check_after_crash(tmp_path / "killed", setting, undisturbed_window[reserves])
    with Store(tmp_path / "killed", 8 << 20) as store:
        tables = setting.open(store)
        tables.maintain(wait=True)
        check_store(store, tables, setting.generation)
        tables.close()

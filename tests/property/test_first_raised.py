"""Tables whose first anchors go find the same as a short brute force, whatever was frozen, merged, dropped or
lost in a crash, and what is gone takes no room."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream.tables import tables as all_tables
from stream.tables.runs.run import Run, run_named
from stream.tables.runs.tier import RUN, WINDOWED
from stream.tables.store.anchors import CHUNK, DEAD, SKIPPED, with_prefix
from stream.tables.store.rocks import DEFAULT, LOG, RUNS, Store
from stream.tables.tables import Tables
from tests.first_numbers import LATE
from tests.night import by_night
from tests.property.indexed import CACHE, Case, Indexed, Rows, copy_live
from tests.property.test_tables_oracle import OF_RESERVES

APPLIED = b"test/applied"
WINDOW = 160
SIZES = {
    "hot": Case(5, 2),
    "frozen": Case(5, 2, generation=40, cap=None),
    "small generations": Case(5, 2, generation=16),
    "merged again and again": Case(5, 2, generation=2),
    "merged": Case(5, 2, generation=8),
    "several words": Case(5, 2, spread=True, generation=6),
    "generations larger than the window": Case(5, 2, generation=300),
}
SIZES |= {f"reserves, {name}": case for name, case in OF_RESERVES.items()}
LONG = ("merged again and again",)
"""Take a minute each; those of reserves and of several words merge, too."""


@dataclass(frozen=True)
class Step:
    """What one batch does: it inserts anchors, kills some, and lets the anchors begin at a number."""

    rows: Rows
    masks: list[int]
    kills: list[int]
    first: int


class Replayed(Indexed):
    """Steps that are applied to tables and to their oracle, one after the other. After a crash, those that
    were lost are applied again, as the journal's records are."""

    def __init__(self, case: Case, path: Path, seed: Any) -> None:
        super().__init__(case, path / "0", seed, windowed=True)
        self.steps: list[Step] = []
        self._before = [self.oracle.copy()]
        self._path, self._directories = path, 0

    def step(self, *, end: bool) -> Step:
        """A step that inserts new anchors and copies of some of those that go, into the same buckets."""
        oracle, tables, start, rng = self.oracle, self.tables, self.case.first, self.rng
        rows = self.make(int(rng.integers(0, 90)), earlier=200, values=4)
        first = int(rng.integers(tables.first, max(tables.first, tables.count - WINDOW) + 30))
        first = tables.count if end else min(first, tables.count)
        leaving = sorted(set(range(tables.first, first)) - oracle.dead)
        carried = [each - start for each in leaving if rng.random() < 0.3]
        share = 0.7 if self.case.reserves else 0.3
        masks = [oracle.masks[each] for each in carried] + self.case.masks(rng, len(rows), share)
        kills = rng.integers(first, max(first + 1, tables.count), 3 if share and first < tables.count else 0)
        return Step(oracle.rows[carried] + rows, masks, kills.tolist(), first)

    def apply(self, step: Step) -> None:
        """Apply a step that is new."""
        self.steps.append(step)
        self.oracle.add(step.rows, step.masks)
        self.oracle.dead.update(step.kills, range(self.case.first, step.first))
        self._before.append(self.oracle.copy())
        self._write(len(self.steps) - 1, self.check_some)

    def check_some(self) -> None:
        self.check(self.make(40, earlier=300, values=4))

    def _write(self, place: int, check_now: Callable[[], None] = lambda: None) -> None:
        step, tables, batch = self.steps[place], self.tables, self.store.batch()
        if place % 2:
            tables.raise_first(batch, max(tables.first, step.first - 7))
        skipped = {row: mask for row, mask in enumerate(step.masks) if mask}
        tables.insert(batch, step.rows.prints, skipped, step.rows.words)
        tables.kill(batch, np.array([each for each in step.kills if each >= tables.first], np.int64))
        tables.raise_first(batch, step.first)
        check_now()
        batch.put(DEFAULT, APPLIED, (place + 1).to_bytes(4, "big"))
        self.store.write(batch)

    def crash(self) -> None:
        """Go on from what is durable."""
        self._directories += 1
        path = self._path / f"{self._directories}"
        copy_live(Path(self.store.path), path)
        self.tables.close()
        self.store.close()
        self.store = Store(path, CACHE)
        self.tables = self.case.open(self.store, windowed=True)
        durable = int.from_bytes(self.store.get(DEFAULT, [APPLIED])[0] or b"", "big")
        latest, self.oracle = self.oracle, self._before[durable].copy()
        self.check_some()
        for place in range(durable, len(self.steps)):
            self._write(place)
            self.tables.maintain(wait=place % 3 == 0)
        self.oracle = latest


def runs_of(store: Store, generation: int) -> list[Run]:
    runs = (run_named(name, generation) for name, _ in with_prefix(store, RUN))
    return sorted(runs, key=lambda run: run.first)


def check_store(store: Store, tables: Tables, generation: int) -> None:
    """Of what is gone, there is little: no mark, no run, no key of one."""
    first = tables.first
    assert all(int.from_bytes(key, "big") > first - CHUNK for key, _ in with_prefix(store, SKIPPED))
    marks = [
        int.from_bytes(key, "big")
        + np.flatnonzero(np.unpackbits(np.frombuffer(value, np.uint8), bitorder="little"))
        for key, value in with_prefix(store, DEAD)
    ]
    assert all(len(block) and block[0] >= first for block in marks)
    assert sum(map(len, marks)) == tables.stats.dead_anchors
    runs = runs_of(store, generation)
    assert all(run.end > first for run in runs)
    assert {key[:5] for key, _ in store.scan(RUNS)} <= {run.name for run in runs}
    rows = [int.from_bytes(key, "big") for key, _ in store.scan(LOG)]
    assert not rows or rows[0] >= first - CHUNK - (tables.count - first) // 8


@pytest.mark.parametrize(
    ("name", "start"),
    [
        *((name, place % 2 * LATE) for place, name in enumerate(SIZES) if name not in LONG),
        *by_night((name, first) for name in SIZES for first in (0, LATE)),
    ],
)
def test_candidates_are_those_of_brute_force_while_the_first_anchors_go(
    name: str, start: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(all_tables, "REMOVED_AT_ONCE", 8)
    case, largest = replace(SIZES[name], first=start), 0
    with Replayed(case, tmp_path, [len(name), start]) as index:
        for turn in range(24):
            index.apply(index.step(end=turn == 18))
            tables = index.tables
            assert tables.stats.dead_anchors == sum(each >= tables.first for each in index.oracle.dead)
            assert not tables.is_alive(np.arange(start, tables.first)).any()
            tables.maintain(wait=turn % 3 == 0)
            largest = max(largest, tables.count - tables.first)
            assert all(
                WINDOWED * run.anchors <= largest
                for run in runs_of(index.store, case.generation)
                if run.level
            )
            if turn % 8 == 4:
                index.store.flush()
            elif turn % 8 == 6:
                index.crash()
            elif turn % 4 == 1:
                digest = tables.stats.digest
                index.reopen()
                assert index.tables.stats.digest == digest
            index.check_some()
        for _ in range(3):
            index.tables.maintain(wait=True)
        index.check_some()
        check_store(index.store, index.tables, case.generation)
        if name == "merged again and again":
            assert 1 in {run.level for run in runs_of(index.store, case.generation)}
        assert index.tables.first > start + 400


def test_only_a_number_between_the_first_and_the_next_can_be_the_first(tmp_path: Path) -> None:
    with Indexed(Case(5, 2), tmp_path) as index:
        tables, batch = index.tables, index.store.batch()
        index.add(index.make(9), 0.0)
        tables.raise_first(batch, 5)
        for first in (4, 10):
            with pytest.raises(ValueError, match="must be from 5 on, and not after 9"):
                tables.raise_first(batch, first)
        with pytest.raises(ValueError, match="from 5 on"):
            tables.kill(batch, np.array([4]))
        tables.raise_first(batch, 9)
        assert not tables.is_alive(np.arange(9)).any()


def test_memory_of_what_is_gone_is_free(tmp_path: Path) -> None:
    """A window of 500 anchors moves through 30,000: bitmap and marks stay as small as at first."""
    with Indexed(Case(5, 2, generation=400), tmp_path, 3, windowed=True) as index:
        tables = index.tables
        for _ in range(60):
            batch = index.store.batch()
            tables.insert(batch, index.rng.integers(0, 1 << 64, 500, dtype=np.uint64), {1: 3, 7: 5})
            tables.kill(batch, np.array([tables.count - 3]))
            tables.raise_first(batch, max(0, tables.count - 500))
            index.store.write(batch)
            tables.maintain(wait=True)
        stats = tables.stats
        assert (stats.dead_anchors, stats.skipping_anchors) == (1, 2)
        assert stats.runs <= 3
        assert len(tables._dead.bits) <= 1 << 10
        assert len(tables._skipped._room.numbers) <= 64
        assert stats.hot_anchors + stats.cold_anchors == 500

"""Tables whose first anchors were dropped find the same as a short brute force that leaves these out, and all
of them once they are taken back, whatever was frozen, merged, gone or lost in a crash."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from stream.tables import tables as all_tables
from stream.tables.cold.freeze import Freezing
from stream.tables.compaction import RUN
from stream.tables.hot import tier as hot
from stream.tables.store.anchors import held_from
from stream.tables.store.rocks import DEFAULT, LOG, Store
from stream.tables.tables import Tables
from stream.tables.taking_back import take_back
from stream.tables.triples.keys import PAIRS
from tests.first_numbers import LATE
from tests.property import test_triples_oracle as of_triples
from tests.property.test_first_raised import Replayed, Step, a_step, check_triples, runs_of
from tests.property.test_tables_oracle import (
    CACHE,
    SPREAD,
    Case,
    TablesOracle,
    add,
    check,
    make_rows,
    make_uncertain,
    room,
)

HELD = 70
"""About so many anchors have tables."""
SIZES = {
    "hot": Case(5, 2, 4, 2),
    "all in RocksDB": Case(5, 2, 4, 2, memory=0, generation=24),
    "merged, newest packed": Case(5, 2, memory=room(64, 8), generation=8),
    "window of 80 packed": Case(5, 2, memory=room(80, 40), generation=40, cap=None),
    "merged, several words": Case(5, 2, spread=True, memory=0, generation=9),
}
TRIPLES = [("hot", 0), ("some packed", LATE), ("all in RocksDB", LATE), ("merged, some packed", 0)]


@dataclass(frozen=True)
class DroppingStep(Step):
    """A step after which there are tables from a number on."""

    held: int


class Dropping(Replayed):
    """Steps that drop tables as well."""

    def _write(self, place: int) -> None:
        super()._write(place)
        step, tables, batch = self.steps[place], self.tables, self.store.batch()
        if isinstance(step, DroppingStep):
            tables.hold_from(batch, max(tables.held, step.held))
        self.store.write(batch)

    def check(self, rng: np.random.Generator) -> None:
        """Compare with the brute force, which knows nothing of the anchors that have no tables."""
        tables, seen = self.tables, deepcopy(self.oracle)
        seen.dead.update(range(self._case.first, tables.held))
        rows = make_rows(rng, 40, np.array(seen.fingerprints[-300:], np.uint64), 0.1)
        check(tables, seen, rows, make_uncertain(rng, len(rows)))
        numbers = np.arange(tables.first, tables.count)
        alive = [number not in self.oracle.dead for number in numbers.tolist()]
        assert tables.is_alive(numbers).tolist() == alive

    def open(self) -> Tables:
        return self._case.open(self.store)

    def reopen(self, to: int | None = None) -> None:
        """Open the tables again, after tables were taken back."""
        self.tables.close()
        if to is not None:
            take_back_in(self.store, self._case, to)
        self.tables = self.open()


def take_back_in(store: Store, case: Case, to: int) -> None:
    take_back(store, SPREAD if case.spread else case.design, case.generation, to, triples=False)


def content(store: Store, tables: Tables) -> str:
    """The digest of what is stored, apart from tables and from which there are."""
    return store.digest({DEFAULT: b"", LOG: tables.start}, leave_out=RUN)


@pytest.mark.parametrize(("name", "start"), list(zip(SIZES, cycle([0, LATE]), strict=False)))
def test_candidates_are_those_of_brute_force_while_tables_are_dropped_and_taken_back(
    name: str, start: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(all_tables, "REMOVED_AT_ONCE", 8)
    monkeypatch.setattr(hot, "MOST_ANCHORS", 900)
    case = replace(SIZES[name], first=start)
    rng, replayed, taken = np.random.default_rng([len(name), start]), Dropping(case, tmp_path), 0
    for turn in range(13):
        tables = replayed.tables
        step = a_step(rng, tables, replayed.oracle, skips=name != "hot", end=False)
        count = tables.count + len(step.rows)
        held = max(
            step.first, tables.held, int(rng.integers(tables.held, max(tables.held, count - HELD) + 1))
        )
        replayed.apply(
            DroppingStep(step.rows, step.masks, step.kills, step.first, count if turn == 11 else held)
        )
        replayed.check(rng)
        tables.maintain(wait=turn % 3 == 0)
        replayed.check(rng)
        if turn % 8 == 4:
            replayed.store.flush()
        elif turn % 8 == 6:
            replayed.crash(lambda: replayed.check(rng))
        elif turn % 4 == 1:
            digest = tables.stats.digest
            replayed.reopen()
            assert replayed.tables.held == tables.held
            assert replayed.tables.stats.digest == digest
        elif turn % 8 in (3, 7):
            to = int(rng.integers(tables.first - 5, tables.held + 1)) if turn % 16 == 7 else 0
            taken += tables.held - tables.first
            replayed.reopen(to)
            assert replayed.tables.held == min(tables.held, max(to, tables.first))
        replayed.check(rng)
    assert taken > 80
    assert replayed.tables.held > replayed.tables.first
    for _ in range(3):
        replayed.tables.maintain(wait=True)
    runs = runs_of(replayed.store)
    assert all(run.end > replayed.tables.held for run in runs[:-1])
    stored = {run.key >> 32 for run in runs if run.end > replayed.tables.held}
    for table in range(case.design.tables):
        assert {
            int.from_bytes(key, "big") >> 32 for key, _ in replayed.store.scan(f"table-{table:02d}")
        } <= stored
    whole = Replayed(case, tmp_path / "whole")
    for step in replayed.steps:
        whole.apply(Step(step.rows, step.masks, step.kills, step.first))
    assert content(replayed.store, replayed.tables) == content(whole.store, whole.tables)
    assert replayed.tables.stats.digest == whole.tables.stats.digest
    whole.close()
    replayed.reopen(0)
    replayed.check(rng)
    replayed.close()


@pytest.mark.parametrize(("name", "start"), TRIPLES)
def test_triples_are_those_of_brute_force_while_tables_are_dropped_and_taken_back(
    name: str, start: int, tmp_path: Path
) -> None:
    rng, oracle, (memory, generation) = (
        np.random.default_rng(start),
        of_triples.Anchors(start),
        of_triples.SIZES[name],
    )

    def check_held() -> None:
        seen = deepcopy(oracle)
        seen.dead.update(range(start, tables.held))
        check_triples(tables, seen, of_triples.make_pages(rng, 20, values=4))

    with Store(tmp_path, PAIRS + 1, CACHE) as store:
        tables = of_triples.open_tables(store, memory, generation, start)
        for turn in range(15):
            pages = of_triples.make_pages(rng, int(rng.integers(0, 90)), values=4)
            masks = [of_triples.make_mask(rng) if rng.random() < 0.7 else 0 for _ in pages]
            batch, prints = store.batch(), np.array([page.fingerprint for page in pages], np.uint64)
            tables.insert(
                batch,
                prints,
                {row: mask for row, mask in enumerate(masks) if mask},
                of_triples.words_of(pages),
            )
            oracle.pages += pages
            oracle.masks += masks
            dying = np.arange(tables.first, tables.count)
            dying = dying[rng.random(len(dying)) < 0.03]
            tables.kill(batch, dying)
            oracle.dead.update(dying.tolist())
            tables.hold_from(batch, int(rng.integers(tables.held, max(tables.held, tables.count - HELD) + 1)))
            if turn % 3 == 2:
                tables.raise_first(batch, int(rng.integers(tables.first, tables.held + 10)))
                oracle.dead.update(range(start, tables.first))
            check_held()
            store.write(batch)
            tables.maintain(wait=turn % 3 == 0)
            check_held()
            if turn % 5 == 4:
                tables.close()
                if turn != 9:
                    to = int(rng.integers(tables.first, tables.held + 1))
                    take_back(store, of_triples.DESIGN, generation, to, triples=True)
                    assert held_from(store) == to
                tables = of_triples.open_tables(store, memory, generation)
                check_held()
        tables.close()
        take_back(store, of_triples.DESIGN, generation, 0, triples=True)
        tables = of_triples.open_tables(store, memory, generation)
        assert tables.held == tables.first > start
        left = oracle.masks[tables.first - start :]
        assert tables.stats.triple_entries == sum((mask >> PAIRS).bit_count() for mask in left)
        for _ in range(3):
            tables.maintain(wait=True)
        check_held()
        tables.close()


def test_tables_that_were_taken_back_in_part_are_dropped_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(5, 2, memory=0, generation=8)
    rng, oracle, built = np.random.default_rng(0), TablesOracle(case), list[int]()
    finish = Freezing.finish

    def fail_at_the_fourth(freezing: Freezing) -> None:
        if len(built) == 3:
            raise InterruptedError
        built.append(freezing.run.first)
        finish(freezing)

    with Store(tmp_path, case.design.tables, CACHE) as store:
        tables = case.open(store)
        for _ in range(6):
            add(
                rng,
                store,
                tables,
                oracle,
                make_rows(rng, 40, np.array(oracle.fingerprints, np.uint64), 0.1),
                0.3,
            )
            tables.maintain(wait=True)
        whole = deepcopy(oracle)
        batch = store.batch()
        tables.hold_from(batch, 150)
        store.write(batch)
        oracle.dead.update(range(150))
        tables.maintain(wait=True)
        tables.close()
        with monkeypatch.context() as patched:
            patched.setattr(Freezing, "finish", fail_at_the_fourth)
            with pytest.raises(InterruptedError):
                take_back_in(store, case, 0)
        assert built == sorted(built, reverse=True)
        rows = make_rows(rng, 60, np.array(whole.fingerprints, np.uint64), 0.1)
        for back, expected in ((None, oracle), (None, oracle), (0, whole)):
            if back is not None:
                take_back_in(store, case, back)
            tables = case.open(store)
            check(tables, expected, rows, make_uncertain(rng, len(rows)))
            tables.maintain(wait=True)
            check(tables, expected, rows, make_uncertain(rng, len(rows)))
            tables.close()


def test_tables_are_held_from_a_number_that_there_is(tmp_path: Path) -> None:
    case, oracle = Case(5, 2), TablesOracle(Case(5, 2))
    with Store(tmp_path, case.design.tables, CACHE) as store:
        tables = case.open(store)
        add(np.random.default_rng(0), store, tables, oracle, np.arange(9, dtype=np.uint64), 0.0)
        tables.hold_from(store.batch(), 5)
        for held in (4, 10):
            with pytest.raises(ValueError, match="can be held from 5 on, and not after 9"):
                tables.hold_from(store.batch(), held)
        tables.close()

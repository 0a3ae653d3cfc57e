"""Tables whose first anchors go find the same as a short brute force, whatever was frozen, merged, dropped or
lost in a crash, and what is gone takes no room."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream.tables import tables as all_tables
from stream.tables.cold.runs import Run, stored_run
from stream.tables.compaction import RUN, WINDOWED
from stream.tables.hot import tier as hot
from stream.tables.store.anchors import CHUNK, DEAD, SKIPPED, with_prefix
from stream.tables.store.rocks import DEFAULT, LOG, Store
from stream.tables.tables import IndexKind, Tables
from stream.tables.triples.keys import PAIRS
from tests.first_numbers import LATE
from tests.night import by_night
from tests.property import test_triples_oracle as of_triples
from tests.property.test_tables_oracle import (
    CACHE,
    PLENTY,
    SLOW,
    U64,
    Case,
    TablesOracle,
    add,
    check,
    copy_live,
    make_rows,
    make_uncertain,
    room,
)
from tests.property.test_triples_oracle import Anchors

APPLIED = b"test/applied"
WINDOW = 160
SIZES = {
    "hot": Case(5, 2, 4, 2, growth=SLOW),
    "frozen, but in RAM": Case(5, 2, 4, 2, generation=40),
    "all in RocksDB": Case(5, 2, 4, 2, memory=0, generation=16),
    "merged again and again": Case(5, 2, 4, 2, memory=0, generation=2),
    "merged, newest packed": Case(5, 2, 4, 2, memory=room(64, 8), generation=8),
    "window of 80 packed": Case(5, 2, memory=room(80, 40), generation=40, cap=None),
    "several words": Case(5, 2, spread=True, memory=0, generation=6),
    "generations larger than the window": Case(5, 2, memory=0, generation=300),
}


def each_early_or_late(names: Iterable[str]) -> list[Any]:
    """Each name with one of the two first numbers, and at night with the other."""
    firsts = [(name, place % 2 * LATE) for place, name in enumerate(names)]
    return [*firsts, *by_night((name, LATE - first) for name, first in firsts)]


@dataclass(frozen=True)
class Step:
    """What one batch does: it inserts anchors, kills some, and lets the anchors begin at a number."""

    rows: U64
    masks: dict[int, int]
    kills: list[int]
    first: int


class Replayed:
    """Steps that are applied to tables and to an oracle, one after the other. After a crash, those that were
    lost are applied again, as the journal's records are."""

    def __init__(self, case: Case, path: Path) -> None:
        self.steps: list[Step] = []
        self.oracle = TablesOracle(case)
        self._before = [self.oracle.copy()]
        self._case, self._path, self._directories = case, path, 0
        self.store = Store(path / "0", case.design.tables, CACHE)
        self.tables = self.open()

    def open(self) -> Tables:
        return self._case.open(self.store, IndexKind(windowed=True))

    def apply(self, step: Step) -> None:
        """Apply a step that is new."""
        self.steps.append(step)
        oracle, design = self.oracle, self._case.design
        for row, (fingerprint, keys) in enumerate(
            zip(step.rows.tolist(), design.keys(step.rows).tolist(), strict=True)
        ):
            oracle.fingerprints.append(fingerprint)
            oracle.entered.append({key for t, key in enumerate(keys) if not step.masks.get(row, 0) >> t & 1})
        oracle.dead.update(step.kills, range(self._case.first, step.first))
        self._before.append(oracle.copy())
        self._write(len(self.steps) - 1)

    def _write(self, place: int) -> None:
        step, tables, batch = self.steps[place], self.tables, self.store.batch()
        if place % 2:
            tables.raise_first(batch, max(tables.first, step.first - 7))
        tables.insert(batch, step.rows, step.masks, self._case.keys(step.rows))
        tables.kill(batch, np.array([each for each in step.kills if each >= tables.first], np.int64))
        tables.raise_first(batch, step.first)
        batch.put(DEFAULT, APPLIED, (place + 1).to_bytes(4, "big"))
        self.store.write(batch)

    def crash(self, check_now: Callable[[], None]) -> None:
        """Go on from what is durable. `check_now` is called when that is opened, with the oracle of then."""
        self._directories += 1
        path = self._path / f"{self._directories}"
        copy_live(Path(self.store.path), path)
        self.close()
        self.store = Store(path, self._case.design.tables, CACHE)
        self.tables = self.open()
        durable = int.from_bytes(self.store.get(DEFAULT, [APPLIED])[0] or b"", "big")
        latest, self.oracle = self.oracle, self._before[durable].copy()
        check_now()
        for place in range(durable, len(self.steps)):
            self._write(place)
            self.tables.maintain(wait=place % 3 == 0)
        self.oracle = latest

    def close(self) -> None:
        self.tables.close()
        self.store.close()


def carried(rng: np.random.Generator, oracle: TablesOracle, numbers: range) -> tuple[list[int], list[int]]:
    """Fingerprints and masks of some live anchors, with which copies enter the same buckets."""
    design, start = oracle.case.design, oracle.case.first
    live = [each - start for each in numbers if each not in oracle.dead and rng.random() < 0.3]
    prints, masks = [oracle.fingerprints[each] for each in live], []
    for each, keys in zip(live, design.keys(np.array(prints, np.uint64)).tolist(), strict=True):
        masks.append(sum(1 << table for table, key in enumerate(keys) if key not in oracle.entered[each]))
    return prints, masks


def a_step(rng: np.random.Generator, tables: Tables, oracle: TablesOracle, *, skips: bool, end: bool) -> Step:
    """A step that inserts new anchors and copies of some of those that go."""
    rows = make_rows(rng, int(rng.integers(0, 90)), np.array(oracle.fingerprints[-200:], np.uint64), 0.1)
    first = int(rng.integers(tables.first, max(tables.first, tables.count - WINDOW) + 30))
    first = tables.count if end else min(first, tables.count)
    prints, masks = carried(rng, oracle, range(tables.first, first))
    if skips:
        masks += [int(rng.integers(1, 1024)) if rng.random() < 0.3 else 0 for _ in rows]
    kills = rng.integers(first, max(first + 1, tables.count), 3 if skips and first < tables.count else 0)
    every = np.concatenate([np.array(prints, np.uint64), rows])
    return Step(every, {row: mask for row, mask in enumerate(masks) if mask}, kills.tolist(), first)


def runs_of(store: Store) -> list[Run]:
    return sorted((stored_run(*each) for each in with_prefix(store, RUN + b"\0")), key=lambda run: run.first)


def check_store(store: Store, tables: Tables, tables_: int) -> None:
    """Of what is gone, there is little: no mark, no run but the record of the last one, no key of one."""
    first = tables.first
    for prefix in (DEAD, SKIPPED):
        assert all(int.from_bytes(key, "big") >= first for key, _ in with_prefix(store, prefix))
    runs = runs_of(store)
    assert all(run.end > first for run in runs[:-1])
    held = {run.key >> 32 for run in runs if run.end > first}
    for table in range(tables_):
        assert {int.from_bytes(key, "big") >> 32 for key, _ in store.scan(f"table-{table:02d}")} <= held
    rows = [int.from_bytes(key, "big") for key, _ in store.scan(LOG)]
    assert not rows or rows[0] >= first - CHUNK - (tables.count - first) // 8


@pytest.mark.parametrize(("name", "start"), each_early_or_late(SIZES))
def test_candidates_are_those_of_brute_force_while_the_first_anchors_go(
    name: str, start: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(all_tables, "REMOVED_AT_ONCE", 8)
    monkeypatch.setattr(hot, "MOST_ANCHORS", 900)
    case = replace(SIZES[name], first=start)
    rng, replayed, largest = np.random.default_rng([len(name), start]), Replayed(case, tmp_path), 0

    def check_some() -> None:
        rows = make_rows(rng, 40, np.array(replayed.oracle.fingerprints[-300:], np.uint64), 0.1)
        check(replayed.tables, replayed.oracle, rows, make_uncertain(rng, len(rows)))

    for turn in range(24):
        tables, oracle = replayed.tables, replayed.oracle
        replayed.apply(a_step(rng, tables, oracle, skips=name != "hot", end=turn == 18))
        assert tables.stats.dead_anchors == sum(each >= tables.first for each in oracle.dead)
        assert not tables.is_alive(np.arange(start, tables.first)).any()
        check_some()
        tables.maintain(wait=turn % 3 == 0)
        largest = max(largest, tables.count - tables.first)
        assert all(WINDOWED * run.anchors <= largest for run in runs_of(replayed.store) if run.level)
        if turn % 8 == 4:
            replayed.store.flush()
        elif turn % 8 == 6:
            replayed.crash(check_some)
        elif turn % 4 == 1:
            digest = tables.stats.digest
            tables.close()
            replayed.tables = replayed.open()
            assert replayed.tables.stats.digest == digest
        check_some()
    store, tables = replayed.store, replayed.tables
    for _ in range(3):
        tables.maintain(wait=True)
    check_some()
    check_store(store, tables, case.design.tables)
    if name == "merged again and again":
        assert 1 in {run.level for run in runs_of(store)}
    assert tables.first > start + 400
    replayed.close()


def check_triples(tables: Tables, oracle: Anchors, pages: list[of_triples.Page]) -> None:
    """As `of_triples.check`, but pairs below which anchors stood that are gone may be looked into as well."""
    found, of_pairs, sizes = oracle.search(pages)
    prints = np.array([page.fingerprint for page in pages], np.uint64)
    answer = tables.search(prints, np.zeros((len(pages), 32), np.uint8), of_triples.words_of(pages))
    pairs = zip(answer.row.tolist(), answer.anchor.tolist(), answer.distance.tolist(), strict=True)
    assert list(pairs) == found
    assert answer.bucket_sizes is not None
    assert answer.bucket_sizes.tolist() == of_pairs
    row, triple, held = (column.tolist() for column in answer.triples)
    looked = dict(zip(zip(row, triple, strict=True), held, strict=True))
    assert {cell: size for cell, size in looked.items() if size} == {
        cell: size for cell, size in sizes.items() if size
    }
    assert list(looked) == sorted(looked)


@pytest.mark.parametrize(("name", "start"), each_early_or_late(of_triples.SIZES))
def test_triples_are_those_of_brute_force_while_the_first_anchors_go(
    name: str, start: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(all_tables, "REMOVED_AT_ONCE", 8)
    rng, oracle, (memory, generation) = np.random.default_rng(start), Anchors(start), of_triples.SIZES[name]
    with Store(tmp_path, PAIRS + 1, CACHE) as store:
        tables = of_triples.open_tables(store, memory, generation, start)
        for turn in range(20):
            pages = of_triples.make_pages(rng, int(rng.integers(0, 90)), values=4)
            masks = [of_triples.make_mask(rng) if rng.random() < 0.7 else 0 for _ in pages]
            first = int(rng.integers(tables.first, max(tables.first, tables.count - WINDOW) + 30))
            first = tables.count if turn == 15 else min(first, tables.count)
            leaving = set(range(tables.first, first)) - oracle.dead
            carried = [each - start for each in sorted(leaving) if each % 3 == 0]
            pages = [oracle.pages[each] for each in carried] + pages
            masks = [oracle.masks[each] for each in carried] + masks
            batch = store.batch()
            prints = np.array([page.fingerprint for page in pages], np.uint64)
            skipped = {row: mask for row, mask in enumerate(masks) if mask}
            if turn % 2:
                tables.raise_first(batch, first)
            tables.insert(batch, prints, skipped, of_triples.words_of(pages))
            if turn % 2 == 0:
                tables.raise_first(batch, first)
            oracle.pages += pages
            oracle.masks += masks
            oracle.dead.update(range(start, first))
            living = np.arange(first, tables.count)
            dying = living[rng.random(len(living)) < 0.03]
            tables.kill(batch, dying)
            oracle.dead.update(dying.tolist())
            check_triples(tables, oracle, of_triples.make_pages(rng, 20, values=4))
            store.write(batch)
            tables.maintain(wait=turn % 3 == 0)
            check_triples(tables, oracle, of_triples.make_pages(rng, 20, values=4))
            left = oracle.masks[first - start :]
            assert tables.stats.triple_entries == sum((mask >> PAIRS).bit_count() for mask in left)
            if turn % 5 == 4:
                tables.close()
                tables = of_triples.open_tables(store, memory, generation)
                check_triples(tables, oracle, of_triples.make_pages(rng, 20, values=4))
        for _ in range(3):
            tables.maintain(wait=True)
        check_triples(tables, oracle, of_triples.make_pages(rng, 40, values=4))
        assert tables.first > start + 400
        holders = tables._triples._entries.holders  # type: ignore[union-attr]
        assert len(holders.of_entries) < 8 * max(400, tables.stats.triple_entries)
        tables.close()


def test_only_a_number_between_the_first_and_the_next_can_be_the_first(tmp_path: Path) -> None:
    case, oracle = Case(5, 2), TablesOracle(Case(5, 2))
    with Store(tmp_path, case.design.tables, CACHE) as store:
        tables = case.open(store)
        add(np.random.default_rng(0), store, tables, oracle, np.arange(9, dtype=np.uint64), 0.0)
        tables.raise_first(store.batch(), 5)
        for first in (4, 10):
            with pytest.raises(ValueError, match="must be from 5 on, and not after 9"):
                tables.raise_first(store.batch(), first)
        with pytest.raises(ValueError, match="from 5 on"):
            tables.kill(store.batch(), np.array([4]))
        tables.raise_first(store.batch(), 9)
        assert not tables.is_alive(np.arange(9)).any()
        tables.close()


def test_memory_of_what_is_gone_is_free(tmp_path: Path) -> None:
    """A window of 500 anchors moves through 60,000: bitmap, marks and chains stay as small as at first."""
    case = Case(5, 2, memory=PLENTY, generation=400)
    rng = np.random.default_rng(3)
    with Store(tmp_path, case.design.tables, CACHE) as store:
        tables = case.open(store, IndexKind(windowed=True))
        for _ in range(120):
            batch = store.batch()
            tables.insert(batch, rng.integers(0, 1 << 64, 500, dtype=np.uint64), {1: 3, 7: 5})
            tables.kill(batch, np.array([tables.count - 3]))
            tables.raise_first(batch, max(0, tables.count - 500))
            store.write(batch)
            tables.maintain(wait=True)
        stats = tables.stats
        assert (stats.dead_anchors, stats.skipping_anchors) == (1, 2)
        assert stats.runs <= 3
        assert len(tables._dead.bits) <= 1 << 10
        assert len(tables._skipped._room.numbers) <= 64
        assert stats.hot_anchors + stats.warm_anchors + stats.cold_anchors == 500
        tables.close()

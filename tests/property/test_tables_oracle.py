"""The tables find the same anchors as a short brute force, whether they are in RAM or in runs."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stream.errors import DamagedStateError, StateError
from stream.tables import tables as all_tables
from stream.tables.arrays import U16, U32, U64
from stream.tables.hot import tier
from stream.tables.hot.buckets import SLOTS, Buckets
from stream.tables.runs import building
from stream.tables.runs.filters import BLOCK_BYTES
from stream.tables.runs.tier import RUN, Runs
from stream.tables.search.pair_collector import MANY, PairCollector
from stream.tables.store.anchors import CHUNK, COUNT, FIRST, NumberSet
from stream.tables.store.rocks import DEFAULT, RECORDS, RUNS, Store
from stream.tables.tables import Tables
from tests.first_numbers import LATE, begin_at
from tests.night import by_night
from tests.property.indexed import CACHE, LAST_ALONE, Case, Indexed, flip, pairs_of

CASES = {
    "paper, 4 tables": Case(4, 1, distance=3, cap=None),
    "paper, 20 tables": Case(6, 3, distance=3, cap=None),
    "3 choose 1": Case(3, 1, distance=2),
    "5 choose 2": Case(5, 2),
    "5 choose 2, no cap": Case(5, 2, cap=None),
    "6 choose 2": Case(6, 2),
    "short prefixes": Case(12, 1, distance=8),
    "long prefixes, frozen": Case(4, 3, generation=90),
    "small generations": Case(5, 2, generation=16),
    "4 tables, frozen": Case(4, 1, distance=3, generation=64),
    "merged again and again": Case(5, 2, generation=3),
    "merged": Case(5, 2, generation=8),
    "merged, 20 tables": Case(6, 3, generation=12),
    "frozen, no cap": Case(5, 2, generation=90, cap=None),
    "20 tables, frozen": Case(6, 3, generation=50),
    "several words": Case(5, 2, spread=True),
    "several words, small generations": Case(5, 2, spread=True, generation=16),
    "several words, merged again and again": Case(5, 2, spread=True, generation=3),
    "several words, frozen, no cap": Case(5, 2, spread=True, generation=90, cap=None),
}
CASES |= {
    f"{name}, late": replace(CASES[name], first=LATE)
    for name in (
        "5 choose 2",
        "small generations",
        "merged again and again",
        "merged",
        "merged, 20 tables",
        "frozen, no cap",
        "several words, merged again and again",
        "several words, frozen, no cap",
    )
}


OF_RESERVES = {
    "hot": Case(reserves=True),
    "frozen": Case(reserves=True, generation=60),
    "frozen once": Case(reserves=True, generation=300),
    "merged again and again": Case(reserves=True, generation=4),
    "merged": Case(reserves=True, generation=13),
}
SHARES = [(0.3, 0.2), (0.0, 0.2), (0.3, 0.0), (0.0, 0.0)]
"""Shares of anchors that skip tables, and of those that share buckets."""


@pytest.mark.parametrize(
    ("name", "skips", "skew"),
    [
        *((name, *SHARES[place % 3]) for place, name in enumerate(CASES)),
        *by_night((name, *shares) for name in CASES for shares in SHARES),
    ],
)
def test_candidates_are_those_of_brute_force(name: str, skips: float, skew: float, tmp_path: Path) -> None:
    case = CASES[name]
    with Indexed(case, tmp_path, [len(name), int(skips > 0), int(skew > 0)]) as index:
        for turn in range(9):
            rows = index.make(int(index.rng.integers(0, 90)), skew)
            index.check(rows)
            index.add(rows[index.rng.random(len(rows)) < 0.8], skips)
            index.tables.maintain(wait=turn % 2 == 0)
        stats = index.tables.stats
        assert stats.generations >= (case.generation < 100)
        assert stats.rocks_hits >= (case.generation < 100)


@pytest.mark.parametrize(
    ("name", "seed", "first"),
    [
        *((name, place, place % 2 * LATE) for place, name in enumerate(OF_RESERVES)),
        *by_night((name, seed, seed % 2 * LATE) for name in OF_RESERVES for seed in (6, 7, 8)),
    ],
)
def test_candidates_in_reserves_and_sizes_are_those_of_brute_force(
    name: str, seed: int, first: int, tmp_path: Path
) -> None:
    with Indexed(replace(OF_RESERVES[name], first=first), tmp_path, seed) as index:
        index.check()
        for turn in range(8):
            index.add(index.make(0 if turn == 3 else int(index.rng.integers(30, 90))), 0.7)
            index.tables.maintain(wait=turn % 2 == 0)
            index.check()
            if turn % 3 == 2:
                index.reopen()
                index.check()
        # Late numbers begin 256 before the end of a generation.
        assert (index.tables.stats.runs > 0) == (name != "hot" or first > 0)


@pytest.mark.parametrize("memory", [0, 4 * BLOCK_BYTES, 64 * BLOCK_BYTES])
def test_answers_are_the_same_with_any_memory_for_filters(
    memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(reserves=True, generation=30)
    with Indexed(case, tmp_path, 6) as index:
        for _ in range(5):
            index.add(index.make(70, 0.2, earlier=0), 0.2)
            index.tables.maintain()
        monkeypatch.setattr(all_tables, "LEAST_FILTERS", memory)
        index.reopen()
        for turn in range(4):
            rows = index.make(70, 0.2)
            index.check(rows)
            index.add(rows, 0.2)
            index.tables.maintain(wait=turn % 2 == 0)
            filters = [held.filter for held in index.tables._runs._runs]
            sizes = sum(each.nbytes for each in filters if each is not None)
            assert sizes <= max(memory, len(filters) * BLOCK_BYTES) or sizes <= 9 * 30 * len(filters)
        monkeypatch.setattr(all_tables, "LEAST_FILTERS", 1 << 20)
        index.reopen()
        index.check(rows)


def test_runs_must_follow_each_other_from_the_first_anchor_on(tmp_path: Path) -> None:
    case, first = Case(5, 2, generation=32, first=LATE), LATE
    with Indexed(case, tmp_path, 1) as index:
        index.add(case.rows(np.arange(70, dtype=np.uint64)), 0.0)
        index.tables.maintain(wait=True)
    with Store(tmp_path, CACHE) as store:
        for later, said in (
            (CHUNK, f"anchors begin at {first + CHUNK}, but {first + 70} are counted"),
            (-CHUNK, f"runs hold anchors up to {first - CHUNK}, and from {first} on"),
        ):
            begin_at(store, first + later)
            with pytest.raises(StateError, match=said):
                case.open(store)
        begin_at(store, first)
        batch = store.batch()
        batch.put(DEFAULT, RUN + bytes([0, 0, 0, 0, 1]), b"")
        store.write(batch)
        with pytest.raises(StateError, match="run record 0000000001 is empty"):
            case.open(store)


def test_a_filter_that_is_missing_is_damage(tmp_path: Path) -> None:
    case = Case(5, 2, generation=32)
    with Indexed(case, tmp_path, 1) as index:
        index.add(index.make(90), 0.0)
        index.tables.maintain(wait=True)
    with Store(tmp_path, CACHE) as store:
        batch = store.batch()
        batch.delete(RUNS, index.tables._runs._runs[1].run.key(0xFF))
        store.write(batch)
        with pytest.raises(DamagedStateError, match=r"piece 0 of the filter of Run\(level=0, number=1"):
            case.open(store)


@pytest.mark.parametrize("case", [Case(5, 2, generation=150), Case(reserves=True, generation=150)])
def test_digest_does_not_depend_on_how_batches_cut_the_anchors(case: Case, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    count = 300 if case.reserves else 700
    rows = case.make(rng, count, np.zeros(0, np.uint64))
    masks = case.masks(rng, count, 1.0 if case.reserves else 0.01)
    dying = [(int(rng.integers(0, anchor + 1)), anchor) for anchor in range(0, count, 7)]
    digests = set()
    for cut in (count, 1, 37, 256):
        with Indexed(case, tmp_path / f"{cut}") as index:
            for start in range(0, count, cut):
                some = range(start, min(count, start + cut))
                kills = [anchor for anchor, by in dying if by in some]
                index.insert(rows[some], masks[start : start + cut], kills)
                index.tables.maintain()
                if start % 5 == 0:
                    index.store.flush()
            index.tables.maintain(wait=True)
            assert index.tables.stats.generations == count // 150
            records = index.store.digest(dict.fromkeys(RECORDS, b""), leave_out=RUN)
            digests.add((records, index.tables.stats.digest))
    assert len(digests) == 1


@pytest.mark.parametrize("first", [0, LATE - 2 * CHUNK])
@pytest.mark.parametrize("generation", [1000, 1 << 20])
def test_bucket_of_thousands_is_found_whole(generation: int, first: int, tmp_path: Path) -> None:
    with Indexed(Case(5, 2, generation=generation, first=first), tmp_path, 8) as index:
        for _ in range(3):
            index.add(index.make(700, 0.9, earlier=0), 0.01)
            index.tables.maintain(wait=True)
            index.check(index.make(12, 0.9, earlier=700))


@pytest.mark.parametrize(("blocks", "choose"), [(4, 1), (5, 2), (6, 3), (3, 1)])
@pytest.mark.parametrize("generation", [200, 1 << 20])
def test_exact_design_misses_no_pair_within_its_distance(
    blocks: int, choose: int, generation: int, tmp_path: Path
) -> None:
    most = blocks - choose
    case = Case(blocks, choose, distance=most, cap=None, generation=generation)
    with Indexed(case, tmp_path, 9) as index:
        anchors = index.rng.integers(0, 1 << 64, 700, dtype=np.uint64)
        index.insert(case.rows(anchors), [0] * 700)
        index.tables.maintain(wait=True)
        rows = case.rows(flip(index.rng, anchors, most + 1))
        distances = np.bitwise_count(rows.prints[:, None] ^ anchors)
        near = np.nonzero(distances <= most)
        found = index.tables.search(rows.prints)
        assert pairs_of(found) == list(
            zip(*(each.tolist() for each in (*near, distances[near])), strict=True)
        )


@pytest.mark.parametrize("what", ["_build", "_read_filter"])
def test_an_error_in_the_background_ends_in_maintain(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise MemoryError("no more")

    with Indexed(Case(5, 2, generation=20), tmp_path, 18) as index:
        if what == "_build":
            monkeypatch.setattr(building, "build", refused)
        else:
            monkeypatch.setattr(index.tables._runs, what, refused)
        index.add(index.make(100), 0.0)
        with pytest.raises(MemoryError, match="no more"):
            index.tables.maintain(wait=True)


def test_state_of_another_generation_size_or_design_is_refused(tmp_path: Path) -> None:
    with Store(tmp_path, CACHE) as store:
        Case(5, 2, generation=100).open(store).close()
        with pytest.raises(StateError, match=r"tables_generation: .*made with 100, not 200"):
            Case(5, 2, generation=200).open(store)
        with pytest.raises(StateError, match="choose"):
            Case(5, 3, generation=100).open(store)
        batch = store.batch()
        for name, number in ((FIRST, 7), (COUNT, 3)):
            batch.put(DEFAULT, name, number.to_bytes(8, "little"))
        store.write(batch)
        with pytest.raises(StateError, match="begin at 7, but 3 are counted"):
            Case(5, 2, generation=100).open(store)


def test_empty_search_finds_nothing(tmp_path: Path) -> None:
    with Indexed(Case(5, 2), tmp_path) as index:
        index.check(index.make(0))
        index.insert(index.make(0), [])
        with pytest.raises(ValueError, match="below 0"):
            index.tables.kill(index.store.batch(), np.array([0]))


@pytest.mark.parametrize(("spread", "first"), [(False, 0), (True, 0), (False, LATE)])
def test_thousands_of_pairs_are_found(tmp_path: Path, spread: bool, first: int) -> None:
    """They are not sorted."""
    with Indexed(Case(5, 2, distance=40, spread=spread, first=first), tmp_path) as index:
        for _ in range(3):
            rows = index.make(150, 0.9)
            index.check(rows[:70])
            index.add(rows, 0.2)
        index.check(rows)
        assert len(index.tables.search(rows.prints, rows.words).row) > MANY


def test_a_search_that_is_full_of_anchors_that_are_gone_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB still has them. The search ends there, before it has found the others."""
    with Indexed(Case(reserves=True, generation=40), tmp_path, 12) as index:
        prints = index.rng.integers(0, 1 << 8, 160, dtype=np.uint64)
        rows = index.case.rows_of_minima([[7] * 30] * 160, prints)
        index.insert(rows, [LAST_ALONE] * 160)
        index.tables.maintain(wait=True)
        batch = index.store.batch()
        index.tables.raise_first(batch, 30)
        index.store.write(batch)
        index.oracle.dead = set(range(30))
        monkeypatch.setattr(all_tables, "PAIRS_AT_ONCE", 100)
        index.check(rows[:2])


def test_large_runs_are_built_by_a_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = []
    for least in (20, 1 << 30):
        monkeypatch.setattr(building, "CHILD_ANCHORS", least)
        with Indexed(Case(reserves=True, generation=12), tmp_path / f"{least}", 4) as index:
            for _ in range(2):
                index.add(index.make(50), 0.7)
            index.tables.maintain(wait=True)
            assert 1 in {held.run.level for held in index.tables._runs._runs}
            index.check()
            digests.append(index.store.digest())
    assert digests[0] == digests[1]


@pytest.mark.parametrize(("rows", "span"), [(1, 3), (40, 500), (40, 2000), (3, 1 << 31)])
def test_pairs_come_in_order_and_once(rows: int, span: int) -> None:
    rng, found = np.random.default_rng(span), PairCollector(1 << 40)
    row, anchor = rng.integers(0, rows, 2 * MANY), rng.integers(span, 2 * span, 2 * MANY)
    distance = (row + anchor) % 60
    packed = (row << 40 | anchor << 8 | distance).astype(np.uint64)
    found.add_packed(packed[:MANY])
    found.add_packed(packed[MANY:])
    want = sorted({*zip(row.tolist(), anchor.tolist(), distance.tolist(), strict=True)})
    assert list(zip(*(each.tolist() for each in found.pairs()), strict=True)) == want


def slots_of(buckets: Buckets) -> tuple[U16, U32]:
    """Tags and values of all slots, (lines, SLOTS)."""
    lines = len(buckets.tags) // 32
    return buckets.tags.reshape(lines, -1)[:, :SLOTS], buckets.values.reshape(lines, -1)[:, -SLOTS:]


def held(tables: Tables) -> int:
    """How many anchors all buckets in RAM have."""
    count = 0
    for generation in tables._hot._generations.values():
        buckets = generation._buckets
        tags, values = slots_of(buckets)
        count += int(((tags != 0) & (values >> np.uint32(31) == 0)).sum())
        count += int(buckets.shared[: buckets.many, 1].sum())
    return count


@pytest.mark.parametrize("leaves", ["merged", "gone"])
def test_a_filter_that_is_read_while_its_run_leaves_is_no_damage(
    leaves: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is more memory again, so a larger filter is read; meanwhile the run is merged, or its anchors
    go."""
    begun, left = threading.Event(), threading.Event()

    def read_later(runs: Runs, held: object, folds: int) -> U64:
        begun.set()
        left.wait(10)
        return read(runs, held, folds)  # type: ignore[arg-type]

    read = Runs._read_filter
    with Indexed(Case(5, 2, generation=64), tmp_path, 3, windowed=leaves == "gone") as index:
        index.add(index.make(600), 0.0)
        with monkeypatch.context() as patch:
            patch.setattr(Runs, "_mergeable", lambda _: None)
            index.tables._runs._memory = 12 * BLOCK_BYTES
            index.tables.maintain(wait=True)
            index.tables._runs._memory = 1 << 20
            patch.setattr(Runs, "_read_filter", read_later)
            index.tables.maintain()
            assert begun.wait(10)
        threading.Timer(0.2, left.set).start()
        if leaves == "gone":
            batch = index.store.batch()
            index.tables.raise_first(batch, 300)
            index.store.write(batch)
            index.oracle.dead |= set(range(300))
        index.tables.maintain(wait=True)
        index.check()


@pytest.mark.parametrize("first", [0, LATE])
def test_a_generation_that_outgrows_its_first_slots_finds_the_same(
    first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier, "FEW", 100)
    with Indexed(Case(reserves=True, first=first, generation=1 << 15), tmp_path, 9) as index:
        slots = set()
        for _ in range(6):
            index.add(index.make(70), 0.7)
            index.check()
            slots |= {len(each._buckets.tags) for each in index.tables._hot._generations.values()}
        assert len(slots) == 3


def test_a_bucket_whose_anchor_dies_again_and_again_takes_one_slot(tmp_path: Path) -> None:
    with Indexed(Case(5, 2), tmp_path) as index:
        row = index.case.rows(np.full(1, 7, np.uint64))
        for number in range(40):
            index.insert(row, [0], range(number - 1, number) if number else ())
        (generation,) = index.tables._hot._generations.values()
        assert np.count_nonzero(slots_of(generation._buckets)[0]) == index.case.design.tables
        assert index.tables.search(row.prints).anchor.tolist() == [39]


def test_an_anchor_that_dies_as_it_comes_enters_no_bucket(tmp_path: Path) -> None:
    """Thousands of versions of a page in one batch would fill one bucket, which each then leaves."""
    with Indexed(Case(5, 2), tmp_path) as index:
        rows = index.case.rows(np.full(40, 7, np.uint64))
        index.insert(rows, [0] * 40, range(39))
        (generation,) = index.tables._hot._generations.values()
        assert np.count_nonzero(slots_of(generation._buckets)[0]) == index.case.design.tables
        assert (generation._buckets.many, generation._buckets.end) == (0, 0)
        assert index.tables.search(rows.prints[:1]).anchor.tolist() == [39]


@pytest.mark.parametrize("first", [0, LATE])
def test_superseded_anchors_leave_their_buckets(tmp_path: Path, first: int) -> None:
    """One URL whose page changes every time must not cost more and more."""
    with Indexed(Case(5, 2, first=first), tmp_path) as index:
        living, rows = list[int](), index.case.rows(np.full(5, 7, np.uint64))
        for _ in range(60):
            living += range(index.tables.count, index.tables.count + len(rows))
            dying = index.rng.choice(living, len(living) - 4, replace=False)
            index.insert(rows, [0] * len(rows), dying)
            living = sorted({*living} - {*dying.tolist()})
            assert held(index.tables) == index.case.design.tables * len(living)
            found = index.tables.search(rows.prints[:1])
            assert found.anchor.tolist() == living
        index.reopen()
        assert held(index.tables) == index.case.design.tables * len(living)


@pytest.mark.parametrize("case", [Case(5, 2, generation=16), Case(reserves=True, generation=16)])
def test_runs_are_built_and_merged_without_what_is_dead(case: Case, tmp_path: Path) -> None:
    """A URL whose page changes every time has an anchor in the same buckets each time."""
    with Indexed(case, tmp_path, 4) as index:
        entered = index.oracle.entered

        def alive() -> int:
            return sum(len(each) for place, each in enumerate(entered) if place not in index.oracle.dead)

        def in_runs() -> int:
            return sum(held.built.entries for held in index.tables._runs._runs)

        for _ in range(4):
            index.add(index.make(16), 0.5)
        index.insert(index.make(0), [], range(5, 35))
        index.tables.maintain(wait=True)
        assert in_runs() == alive()
        index.insert(index.make(0), [], range(40, 60))
        assert in_runs() > alive()
        index.add(index.make(64), 0.0)
        index.tables.maintain(wait=True)
        assert [held.run.level for held in index.tables._runs._runs] == [1]
        assert in_runs() == alive()
        index.check()
        index.reopen()
        index.check()


def test_a_group_that_many_rows_need_is_read_once(tmp_path: Path) -> None:
    with Indexed(Case(5, 2, cap=None, generation=64), tmp_path) as index:
        rows = index.case.rows(np.full(128, 7, np.uint64))
        index.insert(rows, [0] * 128)
        index.tables.maintain(wait=True)
        index.check(rows[:50])
        assert index.tables.stats.rocks_probes == 2 * index.case.design.tables


def test_a_part_of_a_set_has_what_the_set_has() -> None:
    rng, some = np.random.default_rng(5), NumberSet(1000)
    some.add(rng.integers(1000, 40_000, 900))
    some.raise_first(3000)
    for start, end in ((0, 500), (900, 1100), (2999, 3001), (3000, 9000), (8191, 70_000), (80_000, 90_000)):
        numbers = np.arange(start, end)
        assert some.part(start, end).has(numbers).tolist() == some.test(numbers).tolist()
    assert not NumberSet(0).part(1 << 40, 1 << 41).has(np.arange(1 << 40, (1 << 40) + 9)).any()

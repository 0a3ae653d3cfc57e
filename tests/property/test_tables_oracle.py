"""The tables find the same anchors as a short brute force, whatever tier an anchor or its entry is in a."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream.errors import StateError
from stream.tables import memory_shares
from stream.tables import tables as all_tables
from stream.tables.arrays import U64
from stream.tables.cold import freeze
from stream.tables.cold.presence import Presence
from stream.tables.cold.tier import ColdTier
from stream.tables.compaction import RUN
from stream.tables.design import Design
from stream.tables.hot.heads import Heads
from stream.tables.hot.tier import HEAD_GROWTH, HeadGrowth
from stream.tables.reserves.keys import PAIRS, RESERVES
from stream.tables.search.pair_collector import MANY, PairCollector
from stream.tables.search.probing import Probing, SearchOptions
from stream.tables.store.anchors import CHUNK, COUNT, FIRST
from stream.tables.store.rocks import DEFAULT, Store
from stream.tables.tables import Tables
from stream.tables.warm import tier as warm
from stream.tables.warm.packed import HITS_AT_ONCE, Packed, Packing
from tests.first_numbers import LATE, begin_at
from tests.night import by_night
from tests.property.indexed import (
    ALL_RESERVES,
    CACHE,
    PLENTY,
    SLOW,
    SPREAD,
    Case,
    Indexed,
    Rows,
    copy_live,
    flip,
    pairs_of,
    room,
    room_of_reserves,
)

CASES = {
    "paper, 4 tables": Case(4, 1, distance=3, cap=None),
    "paper, 20 tables": Case(6, 3, distance=3, cap=None),
    "3 choose 1": Case(3, 1, distance=2),
    "5 choose 2": Case(5, 2),
    "5 choose 2, no cap": Case(5, 2, cap=None),
    "6 choose 2": Case(6, 2),
    "short prefixes": Case(12, 1, distance=8),
    "all in RocksDB": Case(5, 2, memory=0, generation=16),
    "4 tables in RocksDB": Case(4, 1, distance=3, memory=0, generation=64),
    "merged again and again": Case(5, 2, memory=0, generation=3),
    "merged, packed while small": Case(5, 2, memory=room(32, 8), generation=8),
    "merged, newest packed": Case(5, 2, memory=room(64, 8), generation=8),
    "merged, 20 tables": Case(6, 3, memory=room(96, 12, design=Design(6, 3)), generation=12),
    "all packed": Case(5, 2, memory=room(630, 90), generation=90, cap=None),
    "all packed, prefixes longer than entries": Case(
        4, 2, memory=room(630, 90, design=Design(4, 2)), generation=90
    ),
    "20 tables in RocksDB": Case(6, 3, memory=0, generation=50),
    "frozen, but in RAM": Case(5, 2, generation=40),
    "window of 80 anchors packed": Case(5, 2, memory=room(80, 40), generation=40),
    "window of 56 anchors packed, 6 tables": Case(
        4, 2, memory=room(56, 28, design=Design(4, 2)), generation=28
    ),
    "growing heads": Case(5, 2, growth=SLOW),
    "growing heads, no cap": Case(5, 2, cap=None, growth=SLOW),
    "growing heads, paper": Case(6, 3, distance=3, growth=SLOW),
    "growing heads, short prefixes, window of 80 packed": Case(
        12, 1, distance=8, memory=room(80, 40, design=Design(12, 1)), generation=40, growth=SLOW
    ),
    "growing heads, window of 80 packed": Case(5, 2, memory=room(80, 40), generation=40, growth=SLOW),
    "memory for less than a generation": Case(5, 2, memory=room(90, 90) - 100, generation=90),
    "several words": Case(5, 2, spread=True),
    "several words, all in RocksDB": Case(5, 2, spread=True, memory=0, generation=16),
    "several words, merged again and again": Case(5, 2, spread=True, memory=0, generation=3),
    "several words, all packed": Case(
        5, 2, spread=True, memory=room(630, 90, design=SPREAD), generation=90, cap=None
    ),
    "several words, window of 80 anchors packed": Case(
        5, 2, spread=True, memory=room(80, 40, design=SPREAD), generation=40
    ),
    "several words, growing heads": Case(5, 2, spread=True, growth=SLOW),
}
CASES |= {
    f"{name}, late": replace(CASES[name], first=LATE)
    for name in (
        "5 choose 2",
        "all in RocksDB",
        "merged again and again",
        "merged, packed while small",
        "merged, 20 tables",
        "all packed, prefixes longer than entries",
        "frozen, but in RAM",
        "growing heads, window of 80 packed",
        "several words, merged again and again",
        "several words, window of 80 anchors packed",
    )
}
CASES["merged, packed while small, from 768 on"] = replace(
    CASES["merged, packed while small"],
    first=3 * CHUNK,  # not a multiple of the number of places, as `LATE` is by chance
)


OF_RESERVES = {
    "hot": Case(reserves=True),
    "all packed": Case(reserves=True, generation=300),
    "some packed": Case(reserves=True, memory=room_of_reserves(500, 125), generation=125),
    "all in RocksDB": Case(reserves=True, memory=0, generation=400),
    "merged again and again": Case(reserves=True, memory=0, generation=24),
    "merged, some packed": Case(reserves=True, memory=room_of_reserves(200, 40), generation=40),
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
    case, packed = CASES[name], 0
    with Indexed(case, tmp_path, [len(name), int(skips > 0), int(skew > 0)]) as index:
        for turn in range(9):
            rows = index.make(int(index.rng.integers(0, 90)), skew)
            index.check(rows)
            index.add(rows[index.rng.random(len(rows)) < 0.8], skips)
            index.tables.maintain(wait=turn % 2 == 0)
            packed = max(packed, index.tables.stats.warm_anchors)
        assert index.tables.stats.generations >= (case.generation < 100)
        if "packed" in name:
            assert packed > 0
        if case.memory == 0:
            assert packed == 0
            assert index.tables.stats.rocks_hits > 0


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
        assert index.tables.stats.reserve_entries > 900
        inner = index.tables._reserves.tiers  # type: ignore[union-attr]
        assert (inner.warm.end > inner.warm.floor) == ("packed" in name)
        is_cold = inner.cold.end > inner.cold._log.first
        assert is_cold == ("RocksDB" in name or "merged" in name or "some" in name)
        if "merged" in name:
            assert any(run.level for run in inner.compaction._runs)


@pytest.mark.parametrize(
    "case",
    [
        CASES["5 choose 2"],
        CASES["all in RocksDB"],
        CASES["all in RocksDB, late"],
        CASES["window of 80 anchors packed"],
        Case(reserves=True, memory=0, generation=50),
        Case(reserves=True, memory=0, generation=50, first=LATE),
    ],
)
def test_crash_loses_what_was_not_flushed_and_nothing_else(case: Case, tmp_path: Path) -> None:
    with Indexed(case, tmp_path / "state", 5) as index:
        for _ in range(3):
            index.add(index.make(60), 0.3)
            index.tables.maintain(wait=True)
        index.store.flush()
        durable, before = index.store.digest(), index.oracle.copy()
        index.add(index.make(60), 0.3)
        copy_live(tmp_path / "state", tmp_path / "crashed")  # as a killed process leaves it
        rows, later = index.make(80), index.oracle
    for name, oracle in ("crashed", before), ("state", later):  # closed in order: nothing is lost
        with Indexed(case, tmp_path / name) as index:
            index.oracle = oracle
            index.check(rows)
            assert (index.store.digest() == durable) == (name == "crashed")


@pytest.mark.parametrize("first", [0, LATE])
@pytest.mark.parametrize("at", ["written", "frozen"])
def test_a_crash_between_writing_and_freezing_loses_nothing(at: str, first: int, tmp_path: Path) -> None:
    """The process ends without closing its tables."""
    with Indexed(Case(reserves=True, memory=0, generation=50, first=first), tmp_path, 9) as index:
        for wait in (True, at == "frozen"):
            index.add(index.make(60), 0.7)
            if wait:
                index.tables.maintain(wait=True)
        index.store.flush()
        if at == "written":  # what an abandoned freeze leaves: no record of its run
            runs = [key for key, _ in index.store.scan(DEFAULT, RUN) if key.startswith(RUN)]
            assert {key[4] for key in runs} == {0, PAIRS}
        abandoned, index.tables = index.tables, index.case.open(index.store)
        index.check()
        index.tables.maintain(wait=True)
        index.check()
        abandoned.close()


@pytest.mark.parametrize("first", [0, LATE])
@pytest.mark.parametrize("memory", [0, room(120, 30), PLENTY])
def test_reopened_tables_answer_the_same_with_any_memory(memory: int, first: int, tmp_path: Path) -> None:
    case = Case(5, 2, memory=room(60, 30), generation=30, first=first)
    with Indexed(case, tmp_path, 6) as index:
        for _ in range(5):
            index.add(index.make(70, 0.2, earlier=0), 0.2)
            index.tables.maintain()
        index.reopen(replace(case, memory=memory))
        for _ in range(3):
            rows = index.make(70, 0.2)
            index.check(rows)
            index.add(rows, 0.2)
            index.tables.maintain(wait=True)


def test_runs_must_follow_each_other_from_the_first_anchor_on(tmp_path: Path) -> None:
    case, first = Case(5, 2, memory=0, generation=30, first=LATE), LATE
    with Indexed(case, tmp_path, 1) as index:
        index.add(case.rows(np.arange(70, dtype=np.uint64)), 0.0)
        index.tables.maintain(wait=True)
    with Store(tmp_path, case.families, CACHE) as store:
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
        with pytest.raises(StateError, match="run record 00000001 is empty"):
            case.open(store)


@pytest.mark.parametrize("case", [Case(5, 2, generation=150), Case(reserves=True, generation=150)])
@pytest.mark.parametrize("memory", [0, PLENTY])
def test_digest_does_not_depend_on_how_batches_cut_the_anchors(
    case: Case, memory: int, tmp_path: Path
) -> None:
    case, rng = replace(case, memory=memory), np.random.default_rng(7)
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
            digests.add((index.store.digest(), index.tables.stats.digest))
    assert len(digests) == 1


@pytest.mark.parametrize("first", [0, LATE - 2 * CHUNK])
@pytest.mark.parametrize("memory", [0, PLENTY])
def test_bucket_of_thousands_is_found_whole(memory: int, first: int, tmp_path: Path) -> None:
    with Indexed(Case(5, 2, memory=memory, generation=1000, first=first), tmp_path, 8) as index:
        for _ in range(3):
            index.add(index.make(700, 0.9, earlier=0), 0.01)
            index.tables.maintain(wait=True)
            index.check(index.make(12, 0.9, earlier=700))


@pytest.mark.parametrize(("blocks", "choose"), [(4, 1), (5, 2), (6, 3), (3, 1)])
@pytest.mark.parametrize("memory", [0, PLENTY])
def test_exact_design_misses_no_pair_within_its_distance(
    blocks: int, choose: int, memory: int, tmp_path: Path
) -> None:
    most = blocks - choose
    case = Case(blocks, choose, distance=most, cap=None, memory=memory, generation=200)
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


@pytest.mark.parametrize("skips", [0.0, 0.3])
@pytest.mark.parametrize("generation", [500, 1 << 20])
def test_anchors_are_found_at_every_moment_while_heads_grow(
    generation: int, skips: float, tmp_path: Path
) -> None:
    growth = HeadGrowth(first_heads=20, linked=40, linked_an_anchor=2)
    with Indexed(Case(5, 2, generation=generation, growth=growth), tmp_path, 10) as index:
        sizes = [index.tables.stats.hot_heads]
        for _ in range(60):
            index.check(index.make(8))
            index.add(index.make(20, 0.02), skips)
            index.tables.maintain(wait=True)
            sizes.append(index.tables.stats.hot_heads)
        assert sizes == sorted(sizes)
        assert len(set(sizes)) >= 3  # grew, again and again


@pytest.mark.parametrize("design", [(5, 2), (4, 2), (12, 1)])
def test_anchors_are_found_at_every_moment_while_tables_are_packed(
    design: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    swaps, probed = list[Packing](), threading.Event()
    request.addfinalizer(probed.set)  # so that a failure ends the thread, too

    def swap(packing: Packing) -> bool:
        swaps.append(packing)
        return whole_swap(packing)

    def pack(packing: Packing) -> None:
        """The second table of the first packing waits until the test has probed between the two."""
        if packing._table == 1:
            probed.wait()
        whole_pack(packing)

    whole_swap, whole_pack = Packing.swap, Packing.pack
    monkeypatch.setattr(Packing, "swap", swap)
    monkeypatch.setattr(Packing, "pack", pack)
    case = Case(*design, memory=room(60, 20, design=Design(*design)), generation=20)
    with Indexed(case, tmp_path, 15) as index:
        tables = index.tables

        def check_while_packed(rows: Rows) -> None:
            tables.maintain()
            index.check(rows)
            if not probed.is_set() and (under_way := tables._tiers.warm._packing):
                if not swaps:
                    under_way[1].result()  # the first table
                    tables.maintain()
                assert len(swaps) == 1
                index.check(rows)
                probed.set()

        for _ in range(9):
            rows = index.make(8)
            index.add(index.make(20), 0.2)
            for _ in range(case.design.tables):
                check_while_packed(rows)
        while not probed.is_set():  # on a busy machine, no generation may have been frozen so far
            check_while_packed(rows)
        tables.maintain(wait=True)
        assert tables.stats.warm_anchors == 60
        assert tables.stats.cold_anchors == 120


def test_anchors_that_leave_while_the_first_tables_are_packed_do_no_harm() -> None:
    design, rng = Design(5, 2), np.random.default_rng(16)
    words = rng.integers(0, 1 << 64, 120, dtype=np.uint64)
    words[:40] &= np.uint64((1 << 30) - 1)  # the old ones are all in one group
    rows = np.column_stack([words, words])
    packed = Packed(design, 40, 80)

    def pack(end: int, dropped: int | None = None) -> None:
        start = packed.end
        packing = Packing(packed, end, lambda: [(start, rows[start:end], None)])
        for table in range(design.tables):
            if table == 4 and dropped is not None:
                packed.drop(dropped)
            packing.pack()
            assert packing.swap() == (table == design.tables - 1)
            groups = 1 << int(design.prefix_bits[table] - packed.low[table])
            assert packed.starts[packed.region[table], groups] == 40

    pack(40)
    packed.drop(40)
    packed.clear(40)
    pack(80, dropped=80)
    assert (packed.first, packed.end) == (80, 80)
    packed.clear(80)
    pack(120)
    assert _found(design, packed, words) == [(row, row, 0) for row in range(80, 120)]


def test_groups_larger_than_what_is_noted_down_at_once_are_searched() -> None:
    design, count = Design(5, 2), HITS_AT_ONCE + 10
    words = np.full(count, 7, np.uint64)
    packed = Packed(design, count, count)
    packing = Packing(packed, count, lambda: [(0, np.column_stack([words, words]), None)])
    for _ in range(design.tables):
        packing.pack()
        packing.swap()
    others = np.array([7, 5, 1 << 63 | 1 << 50 | 1 << 40 | 1 << 20], np.uint64)
    expected = [(row, anchor, row) for row in range(2) for anchor in range(count)]
    assert _found(design, packed, others) == expected


def _found(design: Design, packed: Packed, words: U64) -> list[tuple[int, int, int]]:
    probing = Probing(design, words, words, SearchOptions(3, None))
    packed.search(probing, 3, np.zeros(1, np.uint8))
    row, anchor, distance = probing.collector.pairs()
    return list(zip(row.tolist(), anchor.tolist(), distance.tolist(), strict=True))


def test_large_tiers_are_packed_anew_rarely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packings: list[Packing] = []

    class Counted(Packing):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            packings.append(self)

    monkeypatch.setattr(warm, "Packing", Counted)
    case = Case(3, 1, memory=room(640, 4, design=Design(3, 1)), generation=4)
    with Indexed(case, tmp_path, 17) as index:
        for _ in range(300):
            index.add(index.make(4, 0.0, earlier=0), 0.0)
            index.tables.maintain(wait=True)
        assert index.tables.stats.cold_anchors > 400
        assert 30 < len(packings) < 100


@pytest.mark.parametrize(
    ("what", "memory", "anchors"), [(Packing, PLENTY, 30), (Presence, 0, 100)], ids=["packing", "folding"]
)
def test_error_in_the_background_ends_in_maintain(
    what: type, memory: int, anchors: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While tables are packed, or presence is folded."""

    def refused(_: object) -> None:
        raise MemoryError("no more")

    monkeypatch.setattr(memory_shares, "LEAST_PRESENCE", 1 << 10)
    with Indexed(Case(5, 2, memory=memory, generation=20), tmp_path, 18) as index:
        monkeypatch.setattr(what, "pack" if what is Packing else "fold", refused)
        index.add(index.make(anchors), 0.0)
        with pytest.raises(MemoryError, match="no more"):
            index.tables.maintain(wait=True)


@pytest.mark.parametrize("memory", [0, room(24, 8)])
def test_no_more_is_packed_than_memory_allows_while_rocksdb_is_behind(
    memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Indexed(Case(5, 2, memory=memory, generation=8), tmp_path, 13) as index:
        with monkeypatch.context() as patch:
            patch.setattr(ColdTier, "extend", lambda *_, **__: None)
            index.add(index.make(100), 0.2)
            rows = index.make(30)
            index.tables.maintain(wait=True)
            packed = index.tables.stats.warm_anchors
            assert packed < 96
            assert (packed > 0) == (memory > 0)
            index.check(rows)
        index.tables.maintain(wait=True)
        assert index.tables.stats.cold_anchors + packed == 96
        index.check(rows)


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("name", ["merged, newest packed", "several words, window of 80 anchors packed"])
def test_answers_stay_the_same_while_filters_take_memory_from_packed_anchors(
    name: str, wait: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_shares, "LEAST_PRESENCE", 0)
    with Indexed(CASES[name], tmp_path, 15) as index:
        room = index.tables._tiers.warm.budget
        for _ in range(14):
            rows = index.make(60)
            index.check(rows)
            index.add(rows, 0.2)
            index.tables.maintain(wait=wait)
        for _ in range(4):
            index.tables.maintain(wait=True)
        index.check(rows)
        assert index.tables._tiers.warm.budget < room / 2
        index.reopen()
        index.check(rows)


def test_no_insert_links_more_than_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    growth = HeadGrowth(first_heads=40, linked=100, linked_an_anchor=4)
    anchors = np.random.default_rng(12).integers(0, 1 << 64, 20_000, dtype=np.uint64)
    linked, link = list[int](), Heads.link

    def counted(heads: Heads, fingerprints: U64, *others: Any) -> None:
        linked.append(len(fingerprints))
        link(heads, fingerprints, *others)

    with Indexed(Case(5, 2, distance=0, growth=growth), tmp_path) as index:
        monkeypatch.setattr(Heads, "link", counted)
        for start in range(0, len(anchors), 50):
            linked.clear()
            index.tables.insert(index.store.batch(), anchors[start : start + 50], {})
            assert sum(linked) <= 50 + 4 * 50
            for thread in threading.enumerate():
                if thread.name == "clean-heads":
                    thread.join()
        assert index.tables.stats.hot_heads > 10 * 10_000
        found = index.tables.search(anchors)
        assert found.row.tolist() == found.anchor.tolist() == list(range(len(anchors)))


def test_state_of_another_generation_size_or_design_is_refused(tmp_path: Path) -> None:
    with Store(tmp_path, 10, CACHE) as store:
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
def test_long_chains_are_followed_to_their_end(tmp_path: Path, spread: bool, first: int) -> None:
    """Chains of spam are copied if they are in order, and thousands of pairs are not sorted."""
    with Indexed(Case(5, 2, distance=40, spread=spread, first=first), tmp_path) as index:
        for _ in range(3):
            rows = index.make(150, 0.9)
            index.check(rows[:70])
            index.add(rows, 0.2)
        index.check(rows)
        assert len(index.tables.search(rows.prints, rows.words).row) > MANY


def test_a_search_that_is_full_of_entries_that_are_gone_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB still has them. The search ends there, before it has found the others."""
    with Indexed(Case(reserves=True, memory=0, generation=400), tmp_path, 12) as index:
        prints = index.rng.integers(0, 1 << 8, 40, dtype=np.uint64)
        rows = index.case.rows_of_minima([[7] * 30] * 40, prints)
        index.insert(rows, [ALL_RESERVES] * 40)
        index.tables.maintain(wait=True)
        assert index.tables._reserves.tiers.cold.end == 40 * RESERVES // 400 * 400  # type: ignore[union-attr]
        batch = index.store.batch()
        index.tables.raise_first(batch, 8)
        index.store.write(batch)
        index.oracle.dead = set(range(8))
        monkeypatch.setattr(all_tables, "PAIRS_AT_ONCE", 100)
        index.check(rows[:2])


def test_large_generations_of_entries_are_frozen_by_a_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = []
    for least in (600, 1 << 30):
        monkeypatch.setattr(freeze, "CHILD_ANCHORS", least)
        with Indexed(Case(reserves=True, memory=0, generation=600), tmp_path / f"{least}", 4) as index:
            for _ in range(2):
                index.add(index.make(100), 0.7)
            index.tables.maintain(wait=True)
            assert index.tables._reserves.tiers.compaction.frozen == 600  # type: ignore[union-attr]
            index.check()
            digests.append(index.store.digest())
    assert digests[0] == digests[1]


def test_reads_of_reserves_are_counted_and_no_more_entries_inserted_than_can_be_numbered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Indexed(Case(reserves=True, memory=0, generation=60), tmp_path, 8) as index:
        index.add(index.make(50), 0.7)
        index.tables.maintain(wait=True)
        stats = index.tables.stats
        assert (stats.cold_anchors, stats.generations) == (0, 0)
        index.check()
        assert index.tables.stats.rocks_probes >= index.tables.stats.rocks_hits > 0
        entries = index.tables.stats.reserve_entries
        monkeypatch.setattr(all_tables, "MOST_ANCHORS", entries + 2)
        row = index.make(1)
        insert = partial(index.tables.insert, index.store.batch(), row.prints)
        with pytest.raises(StateError, match=f"the index is full: {entries} entries in reserves"):
            insert({0: 1 | 7 << PAIRS}, row.words)
        index.check()
        insert({0: 1 | 3 << PAIRS}, row.words)
        assert index.tables.stats.reserve_entries == entries + 2


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


def chained(tables: Tables) -> int:
    """How many anchors all chains lead to."""
    hot = tables._tiers.hot
    heads, ring, found = hot._heads, hot._ring, 0
    for head in np.flatnonzero(heads.chains.newest > ring.floor).tolist():
        current, table = int(heads.chains.newest[head]), head >> heads.bits
        while current > ring.floor:
            found += 1
            current = int(heads.chains.links[(current - 1 - ring.origin) % len(ring.rows), table])
    return found


@pytest.mark.parametrize("first", [0, LATE])
@pytest.mark.parametrize("growth", [HEAD_GROWTH, SLOW])
def test_superseded_anchors_leave_the_chains(tmp_path: Path, growth: HeadGrowth, first: int) -> None:
    """One URL whose page changes every time must not cost more and more."""
    with Indexed(Case(5, 2, growth=growth, first=first), tmp_path) as index:
        living, rows = list[int](), index.case.rows(np.full(5, 7, np.uint64))
        for _ in range(60):
            living += range(index.tables.count, index.tables.count + len(rows))
            dying = index.rng.choice(living, len(living) - 4, replace=False)
            index.insert(rows, [0] * len(rows), dying)
            living = sorted({*living} - {*dying.tolist()})
            assert chained(index.tables) == index.case.design.tables * len(living)
            found = index.tables.search(rows.prints[:1])
            assert found.anchor.tolist() == living
        index.reopen()
        assert chained(index.tables) == index.case.design.tables * len(living)

"""The tables find the same anchors as a short brute force, whatever tier an anchor is in."""

from __future__ import annotations

import math
import shutil
import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stream.errors import StateError
from stream.tables import memory_shares
from stream.tables import tables as all_tables
from stream.tables.cold.presence import Presence
from stream.tables.cold.tier import ColdTier
from stream.tables.compaction import RUN
from stream.tables.design import Block, Design
from stream.tables.hot.heads import Heads
from stream.tables.hot.tier import HEAD_GROWTH, HeadGrowth
from stream.tables.memory_shares import PACKED_SHARE
from stream.tables.search.nearest import Nearest
from stream.tables.search.pair_collector import MANY, PairCollector
from stream.tables.search.probing import Probing, SearchOptions
from stream.tables.store.anchors import CHUNK, FIRST
from stream.tables.store.rocks import DEFAULT, Store
from stream.tables.tables import IndexKind, Tables
from stream.tables.warm import tier as warm
from stream.tables.warm.packed import HITS_AT_ONCE, Packed, Packing
from tests.first_numbers import LATE, begin_at
from tests.night import by_night
from tests.probed_keys import probe_keys

CACHE = 8 << 20
U64 = NDArray[np.uint64]
PLENTY = 1 << 30
SLOW = HeadGrowth(first_heads=20, linked=30, linked_an_anchor=1)
"""Heads that grow from 2 a table, over several inserts each time."""


SPREAD = Design(5, 2, 192, [Block(block % 3, 7 + 21 * (block // 3), 19) for block in range(5)])
"""Blocks of 19 bits in three words."""
TWO_OF_FIVE = Design(5, 2)


def room(anchors: int, generation: int, *, design: Design = TWO_OF_FIVE) -> int:
    """Memory in which the warm tier has room for as many."""
    return math.ceil(Packed.bytes(design, anchors, anchors + generation) / PACKED_SHARE)


def spread(rows: U64) -> U64:
    """Keys (n, 3) whose blocks are equal if and only if those of `rows` are, which have 12 or 13 bits."""
    words = rows[:, None] & np.array([[1 << 58], [1 << 20 | 1 << 60], [0x3F << 38]], np.uint64).T
    for block, (word, shift, bits) in enumerate(SPREAD.places):
        own = rows << np.uint64(13 * block) >> np.uint64(51) if block < 4 else rows & np.uint64(0xFFF)
        mask = np.uint64((1 << bits) - 1)
        words[:, word] &= ~(mask << np.uint64(shift))
        words[:, word] |= (own * np.uint64(0x9E3779B97F4A7C15) & mask) << np.uint64(shift)
    return words


@dataclass(frozen=True)
class Case:
    """A design, its probes, and how the anchors are kept."""

    blocks: int
    choose: int
    flip_bits: int = 0
    flips: int = 0
    distance: int = 12
    cap: int | None = 64
    memory: int = PLENTY
    generation: int = 1 << 20
    growth: HeadGrowth = HEAD_GROWTH
    spread: bool = False
    """Whether the blocks are spread over a key of several words; then only exact buckets are probed."""
    first: int = 0
    """Number of the first anchor."""

    @property
    def design(self) -> Design:
        return Design(self.blocks, self.choose)

    def keys(self, rows: U64) -> U64 | None:
        """What the tables index, if not the fingerprints."""
        return spread(rows) if self.spread else None

    def open(self, store: Store, kind: IndexKind = IndexKind()) -> Tables:  # noqa: B008 (immutable)
        if self.first and store.get(DEFAULT, [FIRST]) == [None]:
            begin_at(store, self.first)
        return Tables(
            store,
            SPREAD if self.spread else self.design,
            SearchOptions(self.flip_bits, self.flips, self.distance, self.cap),
            memory=self.memory,
            generation=self.generation,
            growth=self.growth,
            kind=kind,
        )


@dataclass
class TablesOracle:
    """All anchors in plain lists: what entered which bucket, and who is alive. Their numbers are indexes of
    the lists and the first number."""

    case: Case
    fingerprints: list[int] = field(default_factory=list)
    entered: list[set[int]] = field(default_factory=list)
    dead: set[int] = field(default_factory=set)

    def copy(self) -> TablesOracle:
        return TablesOracle(self.case, [*self.fingerprints], [*self.entered], {*self.dead})

    def search(
        self, rows: U64, uncertain: NDArray[np.uint8]
    ) -> tuple[list[tuple[int, int, int]], list[list[int]]]:
        design = self.case.design
        keys = design.keys(rows)
        probes = probe_keys(design, keys, uncertain, self.case.flip_bits, self.case.flips)
        found, sizes = [], []
        anchors = zip(self.fingerprints, self.entered, strict=True)
        live = [(n, f, b) for n, (f, b) in enumerate(anchors, self.case.first) if n not in self.dead]
        for row, fingerprint in enumerate(rows.tolist()):
            probed = set(probes[row].ravel().tolist())
            for number, other, buckets in live:
                distance = (fingerprint ^ other).bit_count()
                if distance <= self.case.distance and probed & buckets:
                    found.append((row, number, distance))
            sizes.append([sum(key in buckets for _, _, buckets in live) for key in keys[row].tolist()])
        return found, sizes


def flip(rng: np.random.Generator, rows: U64, most: int) -> U64:
    """Each row with 0 to `most` bits flipped."""
    bits = rng.integers(0, 64, (len(rows), most), dtype=np.uint64)
    use = np.arange(most) < rng.integers(0, most + 1, (len(rows), 1))
    return rows ^ np.bitwise_or.reduce(np.where(use, np.uint64(1) << bits, np.uint64(0)), axis=1)


def make_rows(rng: np.random.Generator, n: int, earlier: U64, skew: float) -> U64:
    """A third new, a third near earlier rows, a third near rows of the same call; some share 26 bits."""
    rows = rng.integers(0, 1 << 64, n, dtype=np.uint64)
    kind = rng.integers(0, 3, n)
    if len(earlier):
        near = np.flatnonzero(kind == 1)
        rows[near] = flip(rng, earlier[rng.integers(0, len(earlier), len(near))], 9)
    for row in np.flatnonzero(kind == 2):
        rows[row] = flip(rng, rows[rng.integers(0, row + 1)][None], 6)[0]
    template = rng.random(n) < skew
    rows[template] = rows[template] & np.uint64((1 << 38) - 1) | np.uint64(0x123456 << 38)
    return rows


def make_uncertain(rng: np.random.Generator, n: int) -> NDArray[np.uint8]:
    return np.argsort(rng.random((n, 64)), axis=1)[:, :32].astype(np.uint8)


def check(tables: Tables, oracle: TablesOracle, rows: U64, uncertain: NDArray[np.uint8]) -> None:
    expected, sizes = oracle.search(rows, uncertain)
    answer = tables.search(rows, uncertain, oracle.case.keys(rows))
    found = list(zip(answer.row.tolist(), answer.anchor.tolist(), answer.distance.tolist(), strict=True))
    assert found == expected
    if oracle.case.cap is None:
        assert answer.bucket_sizes is None
    else:
        assert answer.bucket_sizes is not None
        assert answer.bucket_sizes.dtype == np.uint32
        assert answer.bucket_sizes.tolist() == sizes


def add(
    rng: np.random.Generator, store: Store, tables: Tables, oracle: TablesOracle, rows: U64, skips: float
) -> None:
    """Insert rows, some of them not into all tables, and supersede a few anchors."""
    design = oracle.case.design
    skipped = {
        int(row): int(rng.integers(1, 1 << design.tables))
        for row in np.flatnonzero(rng.random(len(rows)) < skips)
    }
    batch = store.batch()
    tables.insert(batch, rows, skipped, oracle.case.keys(rows))
    for row, (fingerprint, keys) in enumerate(zip(rows.tolist(), design.keys(rows).tolist(), strict=True)):
        oracle.fingerprints.append(fingerprint)
        oracle.entered.append({key for t, key in enumerate(keys) if not skipped.get(row, 0) >> t & 1})
    held = tables.count - tables.first
    kills = rng.integers(0, max(held, 1), 3 if skips and held else 0) + tables.first
    tables.kill(batch, kills)
    oracle.dead.update(kills.tolist())
    store.write(batch)
    assert tables.count == oracle.case.first + len(oracle.fingerprints)
    assert tables.is_alive(kills).tolist() == [False] * len(kills)


CASES = {
    "paper, 4 tables": Case(4, 1, distance=3, cap=None),
    "paper, 20 tables": Case(6, 3, distance=3, cap=None),
    "3 choose 1": Case(3, 1, distance=2),
    "5 choose 2, exact": Case(5, 2),
    "default": Case(5, 2, 4, 2),
    "default, strict count": Case(5, 2, 4, 2, cap=None),
    "one flip": Case(5, 2, 6, 1),
    "6 choose 2, two flips": Case(6, 2, 4, 2),
    "short prefixes": Case(12, 1, 2, 2, distance=8),
    "all in RocksDB": Case(5, 2, 4, 2, memory=0, generation=16),
    "all in RocksDB, exact": Case(4, 1, distance=3, memory=0, generation=64),
    "merged again and again": Case(5, 2, 4, 2, memory=0, generation=3),
    "merged, packed while small": Case(5, 2, 4, 2, memory=room(32, 8), generation=8),
    "merged, newest packed": Case(5, 2, 4, 2, memory=room(64, 8), generation=8),
    "merged, 20 tables": Case(6, 3, 2, 1, memory=room(96, 12, design=Design(6, 3)), generation=12),
    "all packed": Case(5, 2, 4, 2, memory=room(630, 90), generation=90, cap=None),
    "all packed, prefixes longer than entries": Case(
        4, 2, 3, 2, memory=room(630, 90, design=Design(4, 2)), generation=90
    ),
    "20 tables in RocksDB": Case(6, 3, 2, 1, memory=0, generation=50),
    "frozen, but in RAM": Case(5, 2, 4, 2, generation=40),
    "window of 80 anchors packed": Case(5, 2, 4, 2, memory=room(80, 40), generation=40),
    "window of 56 anchors packed, 6 tables": Case(
        4, 2, 3, 2, memory=room(56, 28, design=Design(4, 2)), generation=28
    ),
    "growing heads": Case(5, 2, 4, 2, growth=SLOW),
    "growing heads, exact": Case(5, 2, cap=None, growth=SLOW),
    "growing heads, paper": Case(6, 3, distance=3, growth=SLOW),
    "growing heads, short prefixes, window of 80 packed": Case(
        12, 1, 2, 2, distance=8, memory=room(80, 40, design=Design(12, 1)), generation=40, growth=SLOW
    ),
    "growing heads, window of 80 packed": Case(5, 2, 4, 2, memory=room(80, 40), generation=40, growth=SLOW),
    "memory for less than a generation": Case(5, 2, 4, 2, memory=room(90, 90) - 100, generation=90),
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
        "5 choose 2, exact",
        "default",
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
    rng = np.random.default_rng([len(name), int(skips > 0), int(skew > 0)])
    oracle = TablesOracle(case)
    with Store(tmp_path / "state", case.design.tables, CACHE) as store:
        tables, packed = case.open(store), 0
        for turn in range(9):
            earlier = np.array(oracle.fingerprints, np.uint64)
            rows = make_rows(rng, int(rng.integers(0, 90)), earlier, skew)
            check(tables, oracle, rows, make_uncertain(rng, len(rows)))
            add(rng, store, tables, oracle, rows[rng.random(len(rows)) < 0.8], skips)
            tables.maintain(wait=turn % 2 == 0)
            packed = max(packed, tables.stats.warm_anchors)
        assert tables.stats.generations >= (case.generation < 100)
        if "packed" in name:
            assert packed > 0
        if case.memory == 0:
            assert packed == 0
            assert tables.stats.rocks_hits > 0
        tables.close()


def copy_live(source: Path, target: Path) -> None:
    """Copy an open state directory as of one moment: again, while background compactions change it."""
    while True:
        with suppress(shutil.Error, FileNotFoundError):  # a file went away meanwhile
            before = {path.name: path.stat().st_size for path in source.glob("*")}
            shutil.copytree(source, target)
            if before == {path.name: path.stat().st_size for path in source.glob("*")}:
                return
        shutil.rmtree(target, ignore_errors=True)


@pytest.mark.parametrize(
    "name", ["default", "all in RocksDB", "all in RocksDB, late", "window of 80 anchors packed"]
)
def test_crash_loses_what_was_not_flushed_and_nothing_else(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    rng = np.random.default_rng(5)
    oracle = TablesOracle(case)
    with Store(tmp_path / "state", case.design.tables, CACHE) as store:
        tables = case.open(store)
        for _ in range(3):
            add(rng, store, tables, oracle, make_rows(rng, 60, np.zeros(0, np.uint64), 0.1), 0.3)
            tables.maintain(wait=True)
        store.flush()
        durable = store.digest()
        later = oracle.copy()
        add(rng, store, tables, later, make_rows(rng, 60, np.zeros(0, np.uint64), 0.1), 0.3)
        copy_live(tmp_path / "state", tmp_path / "crashed")  # as a killed process leaves it
        tables.close()
    rows = make_rows(rng, 80, np.array(later.fingerprints, np.uint64), 0.1)
    uncertain = make_uncertain(rng, 80)
    with Store(tmp_path / "crashed", case.design.tables, CACHE) as store:
        check(case.open(store), oracle, rows, uncertain)
        assert store.digest() == durable
    with Store(tmp_path / "state", case.design.tables, CACHE) as store:  # closed in order: nothing is lost
        check(case.open(store), later, rows, uncertain)


@pytest.mark.parametrize("first", [0, LATE])
@pytest.mark.parametrize("memory", [0, room(120, 30), PLENTY])
def test_reopened_tables_answer_the_same_with_any_memory(memory: int, first: int, tmp_path: Path) -> None:
    case = Case(5, 2, 4, 2, memory=room(60, 30), generation=30, first=first)
    again = replace(case, memory=memory)
    rng = np.random.default_rng(6)
    oracle = TablesOracle(case)
    with Store(tmp_path, case.design.tables, CACHE) as store:
        tables = case.open(store)
        for _ in range(5):
            add(rng, store, tables, oracle, make_rows(rng, 70, np.zeros(0, np.uint64), 0.2), 0.2)
            tables.maintain()
        tables.close()
    oracle.case = again
    with Store(tmp_path, case.design.tables, CACHE) as store:
        tables = again.open(store)
        for _ in range(3):
            rows = make_rows(rng, 70, np.array(oracle.fingerprints, np.uint64), 0.2)
            check(tables, oracle, rows, make_uncertain(rng, 70))
            add(rng, store, tables, oracle, rows, 0.2)
            tables.maintain(wait=True)
        tables.close()


def test_runs_must_follow_each_other_from_the_first_anchor_on(tmp_path: Path) -> None:
    case, first = Case(5, 2, memory=0, generation=30, first=LATE), LATE
    with Store(tmp_path, case.design.tables, CACHE) as store:
        tables = case.open(store)
        add(np.random.default_rng(1), store, tables, TablesOracle(case), np.arange(70, dtype=np.uint64), 0.0)
        tables.maintain(wait=True)
        tables.close()
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


@pytest.mark.parametrize("memory", [0, PLENTY])
def test_digest_does_not_depend_on_how_batches_cut_the_anchors(memory: int, tmp_path: Path) -> None:
    rows = np.random.default_rng(7).integers(0, 1 << 64, 700, dtype=np.uint64)
    digests = set()
    for number, cut in enumerate((700, 1, 37, 256, 300)):
        case = Case(5, 2, memory=memory, generation=150)
        with Store(tmp_path / f"{number}", case.design.tables, CACHE) as store:
            tables = case.open(store)
            for start in range(0, 700, cut):
                part = rows[start : start + cut]
                batch = store.batch()
                tables.insert(batch, part, {9 - start: 5} if start <= 9 < start + cut else {})
                store.write(batch)
                tables.maintain()
                if start % 5 == 0:
                    store.flush()
            batch = store.batch()
            tables.kill(batch, np.array([3, 699]))
            store.write(batch)
            tables.maintain(wait=True)
            assert tables.stats.generations == 4
            digests.add(store.digest())
            tables.close()
    assert len(digests) == 1


@pytest.mark.parametrize("first", [0, LATE - 2 * CHUNK])
@pytest.mark.parametrize("memory", [0, PLENTY])
def test_bucket_of_thousands_is_found_whole(memory: int, first: int, tmp_path: Path) -> None:
    case = Case(5, 2, 4, 2, memory=memory, generation=1000, first=first)
    rng = np.random.default_rng(8)
    oracle = TablesOracle(case)
    with Store(tmp_path, case.design.tables, CACHE) as store:
        tables = case.open(store)
        for _ in range(3):
            rows = make_rows(rng, 700, np.zeros(0, np.uint64), 0.9)
            add(rng, store, tables, oracle, rows, 0.01)
            tables.maintain(wait=True)
            asked = make_rows(rng, 12, rows, 0.9)
            check(tables, oracle, asked, make_uncertain(rng, 12))
        tables.close()


@pytest.mark.parametrize(("blocks", "choose"), [(4, 1), (5, 2), (6, 3), (3, 1)])
@pytest.mark.parametrize("memory", [0, PLENTY])
def test_exact_design_misses_no_pair_within_its_distance(
    blocks: int, choose: int, memory: int, tmp_path: Path
) -> None:
    case = Case(blocks, choose, distance=blocks - choose, cap=None, memory=memory, generation=200)
    rng = np.random.default_rng(9)
    anchors = rng.integers(0, 1 << 64, 700, dtype=np.uint64)
    rows = flip(rng, anchors, blocks - choose + 1)
    with Store(tmp_path, case.design.tables, CACHE) as store:
        tables = case.open(store)
        batch = store.batch()
        tables.insert(batch, anchors, {})
        store.write(batch)
        tables.maintain(wait=True)
        answer = tables.search(rows, make_uncertain(rng, len(rows)))
        distances = np.bitwise_count(rows[:, None] ^ anchors)
        row, anchor = np.nonzero(distances <= blocks - choose)
        assert answer.row.tolist() == row.tolist()
        assert answer.anchor.tolist() == anchor.tolist()
        assert answer.distance.tolist() == distances[row, anchor].tolist()
        tables.close()


@pytest.mark.parametrize("skips", [0.0, 0.3])
@pytest.mark.parametrize("generation", [500, 1 << 20])
def test_anchors_are_found_at_every_moment_while_heads_grow(
    generation: int, skips: float, tmp_path: Path
) -> None:
    growth = HeadGrowth(first_heads=20, linked=40, linked_an_anchor=2)
    case = Case(5, 2, 4, 2, generation=generation, growth=growth)
    rng = np.random.default_rng(10)
    oracle = TablesOracle(case)
    with Store(tmp_path, case.design.tables, CACHE) as store:
        tables = case.open(store)
        sizes = [tables.stats.hot_heads]
        for _ in range(60):
            earlier = np.array(oracle.fingerprints, np.uint64)
            asked = make_rows(rng, 8, earlier, 0.1)
            check(tables, oracle, asked, make_uncertain(rng, 8))
            add(rng, store, tables, oracle, make_rows(rng, 20, earlier, 0.02), skips)
            tables.maintain(wait=True)
            sizes.append(tables.stats.hot_heads)
        assert sizes == sorted(sizes)
        assert len(set(sizes)) >= 3  # grew, again and again
        tables.close()


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
    case = Case(*design, 4, 2, memory=room(60, 20, design=Design(*design)), generation=20)
    rng = np.random.default_rng(15)
    oracle = TablesOracle(case)
    with Store(tmp_path, case.design.tables, CACHE) as store:
        tables = case.open(store)

        def check_while_packed(asked: U64, uncertain: NDArray[np.uint8]) -> None:
            tables.maintain()
            check(tables, oracle, asked, uncertain)
            if not probed.is_set() and (under_way := tables._tiers.warm._packing):
                if not swaps:
                    under_way[1].result()  # the first table
                    tables.maintain()
                assert len(swaps) == 1
                check(tables, oracle, asked, uncertain)
                probed.set()

        for _ in range(9):
            earlier = np.array(oracle.fingerprints, np.uint64)
            asked = make_rows(rng, 8, earlier, 0.1)
            uncertain = make_uncertain(rng, 8)
            add(rng, store, tables, oracle, make_rows(rng, 20, earlier, 0.1), 0.2)
            for _ in range(case.design.tables):
                check_while_packed(asked, uncertain)
        while not probed.is_set():  # on a busy machine, no generation may have been frozen so far
            check_while_packed(asked, uncertain)
        tables.maintain(wait=True)
        assert tables.stats.warm_anchors == 60
        assert tables.stats.cold_anchors == 120
        tables.close()


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
    probing = Probing(
        design, words, words, np.zeros((len(words), 32), np.uint8), SearchOptions(0, 0, 3, None)
    )
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
    rng = np.random.default_rng(17)
    with Store(tmp_path, case.design.tables, CACHE) as store:
        tables, oracle = case.open(store), TablesOracle(case)
        for _ in range(300):
            add(rng, store, tables, oracle, make_rows(rng, 4, np.zeros(0, np.uint64), 0.0), 0.0)
            tables.maintain(wait=True)
        assert tables.stats.cold_anchors > 400
        assert 30 < len(packings) < 100
        tables.close()


def test_error_while_tables_are_packed_ends_in_maintain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: Packing) -> None:
        raise MemoryError("packing")

    monkeypatch.setattr(Packing, "pack", refused)
    case = Case(5, 2, generation=20)
    rng = np.random.default_rng(18)
    with Store(tmp_path, case.design.tables, CACHE) as store:
        tables = case.open(store)
        add(rng, store, tables, TablesOracle(case), make_rows(rng, 30, np.zeros(0, np.uint64), 0.1), 0.0)
        with pytest.raises(MemoryError, match="packing"):
            tables.maintain(wait=True)
        tables.close()


@pytest.mark.parametrize("memory", [0, room(24, 8)])
def test_no_more_is_packed_than_memory_allows_while_rocksdb_is_behind(
    memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(5, 2, 4, 2, memory=memory, generation=8)
    rng = np.random.default_rng(13)
    oracle = TablesOracle(case)
    with Store(tmp_path, case.design.tables, CACHE) as store:
        tables = case.open(store)
        with monkeypatch.context() as patch:
            patch.setattr(ColdTier, "extend", lambda *_, **__: None)
            add(rng, store, tables, oracle, make_rows(rng, 100, np.zeros(0, np.uint64), 0.1), 0.2)
            asked = make_rows(rng, 30, np.array(oracle.fingerprints, np.uint64), 0.1)
            uncertain = make_uncertain(rng, 30)
            tables.maintain(wait=True)
            packed = tables.stats.warm_anchors
            assert packed < 96
            assert (packed > 0) == (memory > 0)
            check(tables, oracle, asked, uncertain)
        tables.maintain(wait=True)
        assert tables.stats.cold_anchors + packed == 96
        check(tables, oracle, asked, uncertain)
        tables.close()


def test_error_while_presence_is_folded_ends_in_maintain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: Presence) -> None:
        raise MemoryError("folding")

    monkeypatch.setattr(memory_shares, "LEAST_PRESENCE", 1 << 10)
    case = Case(5, 2, memory=0, generation=20)
    rng = np.random.default_rng(14)
    with Store(tmp_path, case.design.tables, CACHE) as store:
        tables = case.open(store)
        monkeypatch.setattr(Presence, "fold", refused)
        add(rng, store, tables, TablesOracle(case), make_rows(rng, 100, np.zeros(0, np.uint64), 0.1), 0)
        with pytest.raises(MemoryError, match="folding"):
            tables.maintain(wait=True)
        tables.close()


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("name", ["merged, newest packed", "several words, window of 80 anchors packed"])
def test_answers_stay_the_same_while_filters_take_memory_from_packed_anchors(
    name: str, wait: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_shares, "LEAST_PRESENCE", 0)
    case = CASES[name]
    rng = np.random.default_rng(15)
    oracle = TablesOracle(case)
    with Store(tmp_path, case.design.tables, CACHE) as store:
        tables = case.open(store)
        room = tables._tiers.warm.budget
        for _ in range(14):
            rows = make_rows(rng, 60, np.array(oracle.fingerprints, np.uint64), 0.1)
            check(tables, oracle, rows, make_uncertain(rng, len(rows)))
            add(rng, store, tables, oracle, rows, 0.2)
            tables.maintain(wait=wait)
        for _ in range(4):
            tables.maintain(wait=True)
        check(tables, oracle, rows, make_uncertain(rng, len(rows)))
        assert tables._tiers.warm.budget < room / 2
        tables.close()
        tables = case.open(store)
        check(tables, oracle, rows, make_uncertain(rng, len(rows)))
        tables.close()


def test_no_insert_links_more_than_its_share(tmp_path: Path) -> None:
    growth = HeadGrowth(first_heads=40, linked=100, linked_an_anchor=4)
    case = Case(5, 2, distance=0, growth=growth)
    rng = np.random.default_rng(12)
    anchors = rng.integers(0, 1 << 64, 20_000, dtype=np.uint64)
    with Store(tmp_path, case.design.tables, CACHE) as store:
        tables = case.open(store)
        linked: list[int] = []
        link = Heads.link

        def counted(heads: Heads, fingerprints: U64, *others: Any) -> None:
            linked.append(len(fingerprints))
            link(heads, fingerprints, *others)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Heads, "link", counted)
            for start in range(0, len(anchors), 50):
                linked.clear()
                batch = store.batch()
                tables.insert(batch, anchors[start : start + 50], {})
                assert sum(linked) <= 50 + 4 * 50
                for thread in threading.enumerate():
                    if thread.name == "clean-heads":
                        thread.join()
        assert tables.stats.hot_heads > 10 * 10_000
        answer = tables.search(anchors, make_uncertain(rng, len(anchors)))
        assert answer.row.tolist() == answer.anchor.tolist() == list(range(len(anchors)))
        tables.close()


def test_state_of_another_generation_size_or_design_is_refused(tmp_path: Path) -> None:
    with Store(tmp_path, 10, CACHE) as store:
        Case(5, 2, generation=100).open(store).close()
        with pytest.raises(StateError, match=r"tables_generation: .*made with 100, not 200"):
            Case(5, 2, generation=200).open(store)
        with pytest.raises(StateError, match="choose"):
            Case(5, 3, generation=100).open(store)


def test_empty_search_finds_nothing(tmp_path: Path) -> None:
    case = Case(5, 2, 4, 2)
    with Store(tmp_path, 10, CACHE) as store:
        tables = case.open(store)
        answer = tables.search(np.zeros(0, np.uint64), np.zeros((0, 32), np.uint8))
        assert len(answer.row) == 0
        batch = store.batch()
        tables.insert(batch, np.zeros(0, np.uint64), {})
        tables.kill(batch, np.zeros(0, np.int64))
        with pytest.raises(ValueError, match="below 0"):
            tables.kill(batch, np.array([0]))
        tables.close()


@pytest.mark.parametrize("spread", [False, True])
def test_empty_search_after_a_crowded_one_finds_nothing(
    spread: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for the nearest at once."""
    monkeypatch.setattr(all_tables, "PAIRS_AT_ONCE", 4)
    case, rows = Case(5, 2, spread=spread), np.full(3, 7, np.uint64)
    asked, limit = list[int](), Nearest(1, *np.zeros((3, 0), np.int64))

    def nearest() -> Nearest:
        asked.append(1)
        return limit

    with Store(tmp_path, case.design.tables, CACHE) as store:
        tables = case.open(store)
        batch = store.batch()
        tables.insert(batch, rows, {}, case.keys(rows))
        store.write(batch)
        assert len(tables.search(rows[:1], np.zeros((1, 32), np.uint8), case.keys(rows[:1])).row) == 3
        none = rows[:0]
        parts = list(tables.searches(none, np.zeros((0, 32), np.uint8), case.keys(none), nearest))
        tables.close()
    assert asked == [1]
    assert [(start, len(part.row)) for start, part in parts] == [(0, 0)]


@pytest.mark.parametrize(
    ("flips", "spread", "first"), [(0, False, 0), (2, False, 0), (0, True, 0), (2, False, LATE)]
)
def test_long_chains_are_followed_to_their_end(tmp_path: Path, flips: int, spread: bool, first: int) -> None:
    """Chains of spam are copied if they are in order, and thousands of pairs are not sorted."""
    case = Case(5, 2, 4, flips, distance=40, spread=spread, first=first)
    rng = np.random.default_rng(flips)
    oracle = TablesOracle(case)
    with Store(tmp_path / "state", case.design.tables, CACHE) as store:
        tables = case.open(store)
        for _ in range(3):
            earlier = np.array(oracle.fingerprints, np.uint64)
            rows = make_rows(rng, 150, earlier, 0.9)
            check(tables, oracle, rows[:70], make_uncertain(rng, 70))
            add(rng, store, tables, oracle, rows, 0.2)
        check(tables, oracle, rows, make_uncertain(rng, len(rows)))
        assert len(tables.search(rows, make_uncertain(rng, len(rows)), case.keys(rows)).row) > MANY
        tables.close()


@pytest.mark.parametrize(
    ("memory", "generation", "spread", "most", "anchor_0"),
    [
        (0, 200, False, 5, LATE),
        (0, 200, True, 1, 0),
        (PLENTY, 200, True, 30, 0),
        (PLENTY, 200, False, 1, LATE),
        (PLENTY, 1 << 20, True, 5, LATE),
        (PLENTY, 1 << 20, False, 5, 0),
        *by_night(
            (memory, generation, spread, most, first)
            for memory, generation in ((0, 200), (PLENTY, 200), (PLENTY, 1 << 20))
            for spread in (False, True)
            for most, first in ((1, 0), (5, 0), (30, 0), (5, LATE))
        ),
    ],
)
def test_a_limited_search_finds_the_candidates_of_the_least_rank(
    most: int,
    anchor_0: int,
    memory: int,
    generation: int,
    spread: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of those that are alive at the row's turn and within its own distance; of equal rank the oldest."""
    monkeypatch.setattr(all_tables, "PAIRS_AT_ONCE", 40)
    case = Case(5, 2, distance=40, cap=None, memory=memory, generation=generation, spread=spread,
                first=anchor_0)  # fmt: skip
    rng = np.random.default_rng(most)
    with Store(tmp_path / "state", case.design.tables, CACHE) as store:
        tables, oracle = case.open(store), TablesOracle(case)
        for _ in range(3):
            add(rng, store, tables, oracle, make_rows(rng, 150, np.zeros(0, np.uint64), 0.9), 0.2)
            tables.maintain(wait=True)
        asked = make_rows(rng, 40, np.array(oracle.fingerprints, np.uint64), 0.9)
        pairs, _ = oracle.search(asked, make_uncertain(rng, 40))
        within = rng.integers(10, 22, 40)
        mortal = np.sort(rng.choice(450, 60, replace=False)) + anchor_0
        dies = rng.integers(0, 40, 60)
        wanted = Nearest(most, within, mortal, dies)
        found = set[tuple[int, int]]()
        for first, part in tables.searches(asked, make_uncertain(rng, 40), case.keys(asked), lambda: wanted):
            found |= set(zip((part.row + first).tolist(), part.anchor.tolist(), strict=True))
        tables.close()
        dead_from = dict(zip(mortal.tolist(), dies.tolist(), strict=True))
        keys, own = (case.keys(each) for each in (np.array(oracle.fingerprints, np.uint64), asked))
        for row in range(40):
            ranks = sorted(
                (
                    distance
                    + (2 * unequal_minima(own[row], keys[anchor - anchor_0]) if own is not None else 0),
                    anchor,
                )
                for of, anchor, distance in pairs
                if of == row and distance <= within[row] and dead_from.get(anchor, row + 1) > row
            )
            assert {(row, anchor) for _, anchor in ranks[:most]} <= found
        assert generation == 200 or len(found) < len(pairs) / 2  # the hot tier alone leaves some out


def unequal_minima(one: U64, other: U64) -> int:
    one, other = ([int(word) for word in words] for words in (one, other))
    places = [(word, 19 * place) for word in range(3) for place in range(3)]
    nine = sum((one[word] ^ other[word]) >> place & 0x7FFFF != 0 for word, place in places)
    return nine + any((a ^ b) >> 57 for a, b in zip(one, other, strict=True))


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
    case = Case(5, 2, growth=growth, first=first)
    rng = np.random.default_rng(0)
    with Store(tmp_path / "state", case.design.tables, CACHE) as store:
        tables, living = case.open(store), list[int]()
        for _ in range(60):
            batch, rows = store.batch(), np.full(5, 7, np.uint64)
            tables.insert(batch, rows, {})
            living += range(tables.count - len(rows), tables.count)
            dying = rng.choice(living, len(living) - 4, replace=False)
            tables.kill(batch, dying)
            store.write(batch)
            living = sorted({*living} - {*dying.tolist()})
            assert chained(tables) == case.design.tables * len(living)
            found = tables.search(rows[:1], make_uncertain(rng, 1))
            assert found.anchor.tolist() == living
        tables.close()
        again = case.open(store)
        assert chained(again) == case.design.tables * len(living)
        again.close()

"""Tables beside a short brute force: what is done to one is done to the other."""

from __future__ import annotations

import shutil
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from stream.fingerprint.scheme import Scheme
from stream.judge.rule import Rule
from stream.messages.verdict_options import VerdictOptions
from stream.tables.arrays import U64
from stream.tables.design import Block, Design
from stream.tables.reserves.keys import LAST_RESORT, PAIRS, RESERVES
from stream.tables.search.probing import SearchOptions
from stream.tables.search.result import SearchResult
from stream.tables.store.anchors import FIRST
from stream.tables.store.rocks import DEFAULT, Store
from stream.tables.tables import IndexKind, Tables
from tests.first_numbers import begin_at
from tests.judged_crawls import packed_minima

CACHE = 8 << 20
SPREAD = Design(5, 2, 192, [Block(block % 3, 7 + 21 * (block // 3), 19) for block in range(5)])
"""Blocks of 19 bits in three words."""
LAST_ALONE = (1 << PAIRS) - 1 | 1 << PAIRS + LAST_RESORT
"""The mask of an anchor that is in its last resort alone."""
OF_MINIMA = Rule(VerdictOptions(), Scheme()).design()
MINIMA = [
    *((3 * triangle + a, 3 * triangle + b) for triangle in range(10) for a, b in ((0, 1), (1, 2), (0, 2))),
    tuple(range(30)),
]
"""The minima of each bucket of a page: thirty pairs, of which nine come first, and all of them."""


def spread(rows: U64) -> U64:
    """Keys (n, 3) whose blocks are equal if and only if those of `rows` are, which have 12 or 13 bits."""
    words = rows[:, None] & np.array([[1 << 58], [1 << 20 | 1 << 60], [0x3F << 38]], np.uint64).T
    for block, (word, shift, bits) in enumerate(SPREAD.places):
        own = rows << np.uint64(13 * block) >> np.uint64(51) if block < 4 else rows & np.uint64(0xFFF)
        mask = np.uint64((1 << bits) - 1)
        words[:, word] &= ~(mask << np.uint64(shift))
        words[:, word] |= (own * np.uint64(0x9E3779B97F4A7C15) & mask) << np.uint64(shift)
    return words


@dataclass
class Rows:
    """What is inserted or searched for."""

    prints: U64
    """Fingerprints (n,)."""
    words: U64 | None
    """What the tables index, if not the fingerprints: (n, 3), or of minima (n, 8)."""
    buckets: list[list[Any]]
    """Each row's buckets: one a table, and reserves."""

    def __len__(self) -> int:
        return len(self.prints)

    def __getitem__(self, chosen: Any) -> Rows:
        places = np.arange(len(self))[chosen]
        words = None if self.words is None else self.words[places]
        return Rows(self.prints[places], words, [self.buckets[each] for each in places])

    def __add__(self, others: Rows) -> Rows:
        words = None
        if self.words is not None and others.words is not None:
            words = np.concatenate([self.words, others.words])
        prints = np.concatenate([self.prints, others.prints])
        return Rows(prints, words, self.buckets + others.buckets)


@dataclass(frozen=True)
class Case:
    """A design, and how the anchors are kept."""

    blocks: int = 5
    choose: int = 2
    distance: int = 12
    cap: int | None = 64
    memory: int = 0
    generation: int = 1 << 20
    spread: bool = False
    """Whether the blocks are spread over a key of several words."""
    first: int = 0
    """Number of the first anchor."""
    reserves: bool = False
    """Whether the tables are of first pairs of minima, and anchors may be in reserves."""

    @property
    def design(self) -> Design:
        return OF_MINIMA if self.reserves else Design(self.blocks, self.choose)

    def open(self, store: Store, *, windowed: bool = False) -> Tables:
        if self.first and store.get(DEFAULT, [FIRST]) == [None]:
            begin_at(store, self.first)
        return Tables(
            store,
            SPREAD if self.spread else self.design,
            SearchOptions(self.distance, self.cap),
            memory=self.memory,
            generation=self.generation,
            kind=IndexKind(self.reserves, windowed),
        )

    def rows(self, prints: U64) -> Rows:
        """Rows with these fingerprints."""
        return Rows(prints, spread(prints) if self.spread else None, self.design.keys(prints).tolist())

    def rows_of_minima(self, minima: list[list[int]], prints: U64) -> Rows:
        """Rows with thirty minima each."""
        packed = [packed_minima(each) for each in minima]
        words = np.array([[each >> 64 * word & 2**64 - 1 for word in range(8)] for each in packed], np.uint64)
        buckets = [
            [(which, *(own[each] for each in places)) for which, places in enumerate(MINIMA)]
            for own in minima
        ]
        return Rows(prints, words.reshape(-1, 8), buckets)

    def make(
        self, rng: np.random.Generator, n: int, earlier: U64, skew: float = 0.1, values: int = 2
    ) -> Rows:
        """A third new, a third near earlier rows, a third near rows of the same call; some share 26 bits.
        Minima have few values, so that rows share many pairs."""
        if self.reserves:
            others = rng.integers(0, 2**15, (n, 30)) * (rng.random((n, 30)) < 0.2)
            minima = 1000 * rng.integers(0, values, (n, 30)) + others
            return self.rows_of_minima(minima.tolist(), rng.integers(0, 1 << 16, n, dtype=np.uint64))
        prints = rng.integers(0, 1 << 64, n, dtype=np.uint64)
        kind = rng.integers(0, 3, n)
        if len(earlier):
            near = np.flatnonzero(kind == 1)
            prints[near] = flip(rng, earlier[rng.integers(0, len(earlier), len(near))], 9)
        for row in np.flatnonzero(kind == 2):
            prints[row] = flip(rng, prints[rng.integers(0, row + 1)][None], 6)[0]
        template = rng.random(n) < skew
        prints[template] = prints[template] & np.uint64((1 << 38) - 1) | np.uint64(0x123456 << 38)
        return self.rows(prints)

    def masks(self, rng: np.random.Generator, n: int, share: float) -> list[int]:
        """Of a share of the rows, the tables that they skip and the reserves that they enter instead."""
        return [self._mask(rng) if rng.random() < share else 0 for _ in range(n)]

    def _mask(self, rng: np.random.Generator) -> int:
        if not self.reserves:
            return int(rng.integers(1, 1 << self.design.tables))
        out = np.flatnonzero(rng.random(PAIRS) < 0.5)
        instead = rng.permutation(LAST_RESORT)[: len(out)] if rng.random() < 0.9 else [LAST_RESORT]
        return sum(1 << int(each) for each in [*out, *(PAIRS + each for each in instead)]) if len(out) else 0


def flip(rng: np.random.Generator, rows: U64, most: int) -> U64:
    """Each row with 0 to `most` bits flipped."""
    bits = rng.integers(0, 64, (len(rows), most), dtype=np.uint64)
    use = np.arange(most) < rng.integers(0, most + 1, (len(rows), 1))
    flipped: U64 = np.bitwise_or.reduce(np.where(use, np.uint64(1) << bits, np.uint64(0)), axis=1)
    return rows ^ flipped


@dataclass
class TablesOracle:
    """All anchors in plain lists: which buckets each entered, and who is alive. Their numbers are indexes of
    the lists and the first number."""

    case: Case
    rows: Rows
    masks: list[int] = field(default_factory=list)
    entered: list[set[Any]] = field(default_factory=list)
    dead: set[int] = field(default_factory=set)
    stayed_out: dict[Any, int] = field(default_factory=dict)
    """First pair -> the youngest anchor that stayed out of it."""

    def copy(self) -> TablesOracle:
        lists, sets = ([*self.masks], [*self.entered]), ({*self.dead}, {**self.stayed_out})
        return TablesOracle(self.case, self.rows, *lists, *sets)

    def add(self, rows: Rows, masks: list[int]) -> None:
        tables = self.case.design.tables
        self.rows, self.masks = self.rows + rows, self.masks + masks
        for own, mask in zip(rows.buckets, masks, strict=True):
            usual = ((mask >> place & 1) == (place >= tables) for place in range(len(own)))
            number = self.case.first + len(self.entered)
            self.entered.append({each for each, enters in zip(own, usual, strict=True) if enters})
            out = (each for place, each in enumerate(own[:tables]) if mask >> place & 1)
            self.stayed_out |= dict.fromkeys(out, number)

    def search(
        self, rows: Rows, oldest: int
    ) -> tuple[list[tuple[int, int, int]], list[list[int]], dict[int, list[int]]]:
        """Candidates as (row, anchor, distance), sizes of the buckets in tables, and those of the reserves of
        each row that looks into them, as an anchor from `oldest` on stayed out of one of its pairs."""
        first, tables, holders = self.case.first, self.case.design.tables, defaultdict[Any, list[int]](list)
        for number, entered in enumerate(self.entered, first):
            for bucket in entered if number not in self.dead else ():
                holders[bucket].append(number)
        pairs, of_reserves, prints = [], dict[int, list[int]](), self.rows.prints.tolist()
        for row, (fingerprint, own) in enumerate(zip(rows.prints.tolist(), rows.buckets, strict=True)):
            if self.case.reserves and any(self.stayed_out.get(each, -1) >= oldest for each in own[:tables]):
                of_reserves[row] = [len(holders.get(each, ())) for each in own[tables:]]
            looks = own if row in of_reserves else own[:tables]
            for number in sorted(set(chain.from_iterable(holders.get(each, ()) for each in looks))):
                distance = (fingerprint ^ prints[number - first]).bit_count()
                if distance <= self.case.distance:
                    pairs.append((row, number, distance))
        sizes = [[len(holders.get(each, ())) for each in own[:tables]] for own in rows.buckets]
        return pairs, sizes, of_reserves


def pairs_of(found: SearchResult) -> list[tuple[int, int, int]]:
    """(row, anchor, distance) of each candidate."""
    return list(zip(found.row.tolist(), found.anchor.tolist(), found.distance.tolist(), strict=True))


def reserves_of(found: SearchResult) -> dict[int, list[int]]:
    """Row that looks into its reserves -> sizes of these."""
    further, rows, sizes = found.reserves
    assert np.flatnonzero(further).tolist() == rows.tolist()
    return dict(zip(rows.tolist(), sizes.reshape(-1, RESERVES).tolist(), strict=True))


class Indexed:
    """Tables in a directory, their oracle, and a source of rows. A context manager that closes them."""

    def __init__(self, case: Case, path: Path, seed: Any = 0, *, windowed: bool = False) -> None:
        self.case, self.rng, self._windowed = case, np.random.default_rng(seed), windowed
        self.oracle = TablesOracle(case, case.make(self.rng, 0, np.zeros(0, np.uint64)))
        self.store = Store(path, CACHE)
        self.tables = case.open(self.store, windowed=windowed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if kind is None:  # else something may wait for what the test does no more
            self.tables.close()
        self.store.close()

    def reopen(self, case: Case | None = None) -> None:
        """Close the tables and open them again, perhaps otherwise."""
        self.tables.close()
        self.case = self.oracle.case = case or self.case
        self.tables = self.case.open(self.store, windowed=self._windowed)

    def make(self, n: int, skew: float = 0.1, *, earlier: int = 1 << 20, values: int = 2) -> Rows:
        """Rows of which some are near the last `earlier` anchors."""
        prints = self.oracle.rows.prints
        return self.case.make(self.rng, n, prints[max(0, len(prints) - earlier) :], skew, values)

    def insert(self, rows: Rows, masks: list[int], kills: Any = ()) -> None:
        """Insert rows, and kill anchors, of which some may come with them."""
        batch, kills = self.store.batch(), np.array(kills, np.int64)
        skipped = {row: mask for row, mask in enumerate(masks) if mask}
        self.tables.insert(batch, rows.prints, skipped, rows.words, kills)
        self.store.write(batch)
        self.oracle.add(rows, masks)
        self.oracle.dead.update(kills.tolist())
        assert self.tables.count == self.case.first + len(self.oracle.masks)
        assert not self.tables.is_alive(kills).any()

    def add(self, rows: Rows, share: float) -> None:
        """Insert rows, of which a share does not enter all tables, and kill a few anchors."""
        held = len(self.oracle.masks) + len(rows)
        kills = self.rng.integers(0, max(held, 1), 3 if share and held else 0).tolist()
        if self.case.reserves:
            kills += range(held - min(2, len(rows)), held)
        masks = self.case.masks(self.rng, len(rows), share)
        self.insert(rows, masks, [self.case.first + each for each in kills])

    def check(self, rows: Rows | None = None) -> None:
        """Search for rows, by default for some new ones."""
        rows = self.make(30) if rows is None else rows
        pairs, sizes, of_reserves = self.oracle.search(rows, self.tables.first)
        found = self.tables.search(rows.prints, rows.words)
        assert pairs_of(found) == pairs
        if self.case.cap is None:
            assert found.bucket_sizes is None
        else:
            assert found.bucket_sizes is not None
            assert found.bucket_sizes.tolist() == sizes
        assert reserves_of(found) == of_reserves


def copy_live(source: Path, target: Path) -> None:
    """Copy an open state directory as of one moment: again, while background compactions change it."""
    while True:
        with suppress(shutil.Error, FileNotFoundError):  # a file went away meanwhile
            before = {path.name: path.stat().st_size for path in source.glob("*")}
            shutil.copytree(source, target)
            if before == {path.name: path.stat().st_size for path in source.glob("*")}:
                return
        shutil.rmtree(target, ignore_errors=True)

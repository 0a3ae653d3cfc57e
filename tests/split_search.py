"""The candidates of a judge from tables that are split at random into segments and a rest."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Self, cast

import numpy as np
from numpy.typing import NDArray

from stream.errors import AwaitedAnswerError
from stream.fingerprint.lanes import first_words, words_of
from stream.judge.decision.candidates_compared import Compared, FingerprintedPages, TablesSearch
from stream.judge.ids import INDEX_BITS
from stream.judge.rule import Rule
from stream.judge.segments.answer import Answer, Run, Segment
from stream.judge.segments.deaths import Deaths
from stream.judge.segments.deaths_decided import DecidedDeaths
from stream.judge.segments.file import AnchorColumns, Origin, SegmentFile, write_segment_file
from stream.judge.segments.held_segment import HeldSegment, TablesRoom
from stream.judge.segments.merged_search import Answers, MergedSearch
from stream.judge.state.baselines import Anchors
from stream.judge.state.page_log import LoggedPages
from stream.judge.state.state import State
from stream.messages.journal import Genesis
from stream.tables.arrays import distinct
from stream.tables.search.nearest import Nearest
from stream.tables.store.rocks import Store
from stream.tables.tables import IndexKind, Tables
from tests.first_numbers import begin_at


def answers_about(
    run: Run,
    ids: NDArray[np.int64],
    pages: FingerprintedPages,
    answer: Callable[[Run, NDArray[np.int64], FingerprintedPages], Answer],
) -> list[Answer]:
    """The answers about all pages of a run, each of which may end before the end of the run."""
    answers = [answer(run, ids, pages)]
    while (first := answers[-1].run.until) < run.until:
        rest = slice(int(np.searchsorted(ids, first)), None)
        answers.append(answer(Run.between(first, run.until), ids[rest], pages.take(rest)))
    return answers


@dataclass
class AllAnchors:
    """The records of all anchors that ever were, from the number `first` on."""

    rule: Rule
    first: int
    fingerprint: NDArray[np.uint64]
    sketch: NDArray[np.uint64]
    skipped: NDArray[np.uint64]

    @classmethod
    def none(cls, rule: Rule, first: int) -> Self:
        lanes = words_of(rule.scheme.width), rule.scheme.sketch_bytes // 8
        prints, sketches = (np.zeros((0, each), np.uint64) for each in lanes)
        return cls(rule, first, prints, sketches, np.zeros(0, np.uint64))

    @property
    def count(self) -> int:
        return self.first + len(self.skipped)

    @property
    def words(self) -> NDArray[np.uint64]:
        return self.rule.table_words(self.fingerprint, self.sketch)

    def extend(self, state: State) -> None:
        """Add those that were added to a state. Those that are gone already are zeros."""
        gone = max(0, state.tables.first - self.count)
        new = state.anchors(np.arange(self.count + gone, state.tables.count))
        for name in ("fingerprint", "sketch", "skipped"):
            before, added = getattr(self, name), getattr(new, name)
            missing = np.zeros((gone, *added.shape[1:]), np.uint64)
            setattr(self, name, np.concatenate([before, missing, added]))

    def anchors(self, numbers: NDArray[np.int64]) -> Anchors:
        numbers = distinct(numbers)
        of = numbers - self.first
        without = cast(LoggedPages, None)  # as a segment has no URLs
        return Anchors(numbers, numbers, self.fingerprint[of], self.skipped[of], self.sketch[of], without)


class RangeTables:
    """Tables of a range of anchors, with the deaths up to some position."""

    def __init__(self, path: Path, rule: Rule, first: int) -> None:
        design = rule.design()
        self._store = Store(path, design.tables + rule.triples, 1 << 20)
        begin_at(self._store, first)
        self.tables = Tables(
            self._store,
            design,
            rule.search_options(),
            memory=1 << 20,
            generation=64,
            kind=IndexKind(rule.triples),
        )

    def extend(self, anchors: AllAnchors, end: int) -> None:
        """Add the anchors up to a number, as if none of them were dead."""
        some = slice(self.tables.count - anchors.first, end - anchors.first)
        masks, batch = anchors.skipped[some], self._store.batch()
        skipped = {at: int(masks[at]) for at in np.flatnonzero(masks).tolist()}
        prints = first_words(anchors.fingerprint[some])
        self.tables.insert(batch, prints, skipped, anchors.words[some])
        self._store.write(batch)

    def kill(self, anchors: NDArray[np.int64]) -> None:
        """Apply the deaths of those anchors that are in the range."""
        here = anchors[(anchors >= self.tables.first) & (anchors < self.tables.count)]
        batch = self._store.batch()
        self.tables.kill(batch, here)
        self._store.write(batch)

    def close(self) -> None:
        self.tables.close()
        self._store.close()


class SplitSearch:
    """The search of a state's tables, by tables of its own: of up to five segments, whose answers are older
    than the state, come repeatedly and in any order, and of the rest.

    Every now and then it splits anew. `seen` counts what happened.
    """

    def __init__(self, directory: Path, state: State, genesis: Genesis, seed: int) -> None:
        self._directory, self._state, self._rng = directory, state, random.Random(seed)
        self._rule, self._origin = Rule(genesis.options, genesis.scheme), Origin.of(genesis)
        rule = self._rule
        self._lock, self._opened, self._splits = Lock(), 0, 0
        self._dead: list[DecidedDeaths] = []  # between two positions, from 0 on
        self._known_dead = np.zeros(0, np.int64)
        self._deaths = Deaths(rule, 0)
        self._segments: list[HeldSegment] = []
        self._anchors = AllAnchors.none(rule, state.tables.first)
        self._tail = self._open(state.tables.first)
        self.seen = Counter[str]()

    def _open(self, first: int) -> RangeTables:
        self._opened += 1
        return RangeTables(self._directory / f"{self._opened}", self._rule, first)

    def search(
        self, ids: NDArray[np.int64], pages: FingerprintedPages, wanted: Callable[[], Nearest]
    ) -> Iterator[tuple[int, Compared]]:
        with self._lock:
            self._catch_up()
            parts = self._searched(ids, pages, wanted)
        yield from parts

    def _catch_up(self) -> None:
        """Add what was applied to the state since the last search."""
        tables, anchors = self._state.tables, self._anchors
        every = np.arange(anchors.first, tables.count)
        dead = every[~tables.is_alive(every)]
        new = np.setdiff1d(dead, self._known_dead)
        if len(new) or tables.count > anchors.count:
            anchors.extend(self._state)
            self._known_dead = dead
            # Whichever has expired has a number below the oldest one.
            self._dead.append(DecidedDeaths(new[new >= tables.first], tables.first))
            of = new - anchors.first
            self._deaths.add(len(self._dead), new, anchors.words[of], anchors.skipped[of])
            self.seen["expired"] += int(np.count_nonzero(new < tables.first))
            self._tail.extend(anchors, anchors.count)
            self._tail.kill(new)
            if len(self._dead) % 5 == 3:
                self._split()

    def _split(self) -> None:
        self.close()
        self._segments = []
        first, end = self._state.tables.first, self._anchors.count
        count = min((3, 5, 2, 4, 1)[self._splits % 5], end - first)
        self._splits += 1
        cuts = [first, *sorted(self._rng.sample(range(first + 1, end + 1), count))]
        for one, other in pairwise(cuts):
            self._segments.append(self._held(Segment(one, other)))
        self._tail = self._open(cuts[-1])
        self._tail.extend(self._anchors, end)
        self._tail.kill(self._known_dead)
        self._deaths.forget(self._rng.randint(0, len(self._dead)))
        self.seen[f"{count} segments"] += 1

    def _held(self, segment: Segment) -> HeldSegment:
        """A segment without any death, but for anchors that have expired."""
        self._opened += 1
        path, some = self._directory / f"{self._opened}", slice(*(n - self._anchors.first for n in segment))
        columns = AnchorColumns(*(getattr(self._anchors, name)[some] for name in AnchorColumns._fields))
        write_segment_file(path.with_suffix(".file"), self._origin, segment, [columns])
        file = SegmentFile(path.with_suffix(".file"), self._origin)
        room = TablesRoom(1 << 20, 1 << 20, 64)
        held = HeldSegment.build(path, file, self._rule, room, segment.first)
        if self._rng.random() < 0.3:
            held.close()
            reopened = HeldSegment.open(path, file, self._rule, room)
            assert reopened is not None
            return reopened
        return held

    def _searched(
        self, ids: NDArray[np.int64], pages: FingerprintedPages, wanted: Callable[[], Nearest]
    ) -> list[tuple[int, Compared]]:
        """Ask until the answers suffice: at first as of earlier deaths, then as of the very state, and then
        for longer lists."""
        most = self._rule.selected
        segments = [held.segment for held in self._segments]
        tail = TablesSearch(self._tail.tables, self._state, self._rule)
        given: list[Answer] = []
        for attempt in range(20):
            for _ in range(self._rng.randint(1, 2)):
                for held in self._segments:
                    given += self._ask(held, ids, pages, most, now=attempt > 0)
            given += self._rng.sample(given, len(given) // 3)
            self._rng.shuffle(given)
            answers = Answers(segments)
            for each in given:
                answers.add(each)
            merged = MergedSearch(tail, self._state, self._rule, answers, self._deaths)
            try:
                return list(merged.search(ids, pages, wanted))
            except AwaitedAnswerError as error:
                awaited = error.offset
                self.seen["awaited"] += 1
                most *= 1 + (attempt > 0)
            assert awaited in (ids >> INDEX_BITS).tolist()
        raise AssertionError("answers never suffice")

    def _ask(
        self,
        held: HeldSegment,
        ids: NDArray[np.int64],
        pages: FingerprintedPages,
        most: int,
        *,
        now: bool,
    ) -> list[Answer]:
        """Answers of a segment about all of the pages, in runs of random lengths."""
        rng, offsets = self._rng, np.unique(ids >> INDEX_BITS).tolist()
        cuts = sorted(rng.sample(offsets, min(rng.randint(0, 2), len(offsets))))
        answers = []
        for start, end in zip([0, *cuts], [*cuts, 1 << 40], strict=True):
            applied = held.decided
            position = len(self._dead) if now or rng.random() < 0.2 else rng.randint(applied, len(self._dead))
            for at in range(applied, position):
                held.kill(self._dead[at], at + 1)
            run = Run(start, end)
            some = np.flatnonzero(run.has(ids))
            asked = pages.take(slice(some[0], some[-1] + 1) if len(some) else slice(0, 0))
            parts = answers_about(run, ids[some], asked, lambda *part: held.answer(*part, most))
            answers += parts
            self.seen["stale"] += position < len(self._dead)
            self.seen["cut"] += sum(len(each.cut) for each in parts)
            self.seen["ended early"] += len(parts) - 1
        return answers

    def close(self) -> None:
        for each in (self._tail, *self._segments):
            each.close()

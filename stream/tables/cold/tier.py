"""The cold tier: anchors in RocksDB. RAM holds only presence filters of their buckets."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from stream.compiled import compiled, popcount
from stream.tables.arrays import I64, U64
from stream.tables.cold.presence import (
    BLOCK_BYTES,
    LEAST_BITS,
    Presence,
    blocks_of,
    false_positives,
)
from stream.tables.cold.runs import ENTRY_BYTES, Run, group_keys
from stream.tables.design import Design
from stream.tables.search.packed_pairs import add_pair, count_live, no_pairs
from stream.tables.search.probing import Probing
from stream.tables.search.queries import Criteria, Queries
from stream.tables.store.anchors import IndexedAnchors
from stream.tables.store.rocks import Store, table_family

MOST_BITS: Final = 16
"""Most bits of a presence filter per anchor and table. One probe in 400 is then a false positive."""
_STEP: Final = 7 / 8
"""Filters that are not made yet are reduced in steps of an eighth, those that are made are halved."""
_LARGER: Final = 1.5
"""Filters are made anew if they become so many times larger."""
PARTS: Final = 5
"""New filters take over in so many steps. The tables of one step have filters twice."""
THREADS: Final = 2
"""Number of threads that mark anchors while nothing is searched yet."""


class GroupEntries(NamedTuple):
    """Groups that were read from one table."""

    entries: U64
    """(e, 2)"""
    edges: I64
    """Group g has the entries [edges[g], edges[g + 1])."""


class _TakeOver:
    """New filters of a run that take over, some tables at a time: from those of the runs that it merges, or
    from smaller ones of its own."""

    def __init__(self, presence: Presence, parts: list[Run]) -> None:
        self.presence: Final = presence
        self.run: Final = presence.run
        self.parts: Final = parts
        self.table = 0
        """The tables below this one are searched by the new filters, the others by those of the parts."""
        self.next = 0
        """Filters of the tables below this one are made or being made."""
        self.start = 0
        """Number of the first anchor that is being marked in them."""
        self.marked: Future[None] | None = None


class _Extending(NamedTuple):
    """The anchors [start, end), which are being marked in filters, to be searched then."""

    start: int
    end: int
    marked: Future[None]


class Requests(NamedTuple):
    """The probes that read groups of one table, over r runs."""

    wanted: U64
    """(m,), as in `GroupsToRead`: each reads the group of its own index."""
    edges: I64
    """Run i has the probes [edges[i], edges[i + 1])."""
    firsts: I64
    """(r,): number of the first anchor of each run, relative to the first one of the index."""


class ColdTier:
    """Searches the anchors below `end`, all of which are in runs or gone.

    `memory` is the size in bytes of all presence filters. `background` has a single thread, so that filters
    are updated in the order of requests.
    """

    def __init__(
        self, store: Store, design: Design, anchors: IndexedAnchors, background: ThreadPoolExecutor,
        *, distance: int, memory: int,
    ) -> None:  # fmt: skip
        self._store = store
        self._design = design
        self._log, self._skipped, self._dead = anchors.log, anchors.skipped, anchors.dead
        self._distance = distance
        self._memory = memory
        self.end = anchors.log.first
        """Anchors below this number that are not gone, dead ones included, are searched by this tier."""
        self.probes = 0
        """Groups read from RocksDB."""
        self.hits = 0
        """Groups found in RocksDB."""
        self._runs: dict[Run, Presence | None] = {}
        self._taking_over: _TakeOver | None = None
        self._may_enlarge = False
        self._background = background
        self._extending: _Extending | None = None
        self._closed = False

    @property
    def memory(self) -> int:
        """Filters made later do not exceed this."""
        return self._memory

    @memory.setter
    def memory(self, memory: int) -> None:
        self._memory, self._may_enlarge = memory, True

    def add(self, run: Run) -> None:
        """Register a run that is in RocksDB. It is searched only after `extend`."""
        self._runs[run] = None

    def drop(self, run: Run) -> bool:
        """Forget a run whose anchors are gone. Returns whether that is done, which it is not while new
        filters are taking over. Call it between searches."""
        step = self._taking_over
        if step is not None and (run == step.run or run in step.parts):
            return False
        del self._runs[run]
        self._may_enlarge = True
        return True

    def skip(self, first: int) -> None:
        """Let this tier end at `first` or later: the anchors before that are gone. Call it between
        searches."""
        self.end = max(self.end, first)

    @property
    def reads_from(self) -> int:
        """Anchors below this number are not read any more."""
        starts = [] if self._extending is None else [self._extending.start]
        if (step := self._taking_over) is not None and step.marked is not None:
            starts.append(step.start)
        return min(starts, default=self._log.count)

    def extend(self, end: int, generation: int, *, wait: bool) -> None:
        """Make progress towards searching all anchors below `end`, which are in runs, by generations.

        Filters are updated in the background. With `wait`, returns when all of it is done.
        """
        while self.end < end or self._extending is not None:
            if self._extending is None:
                of_run = next(run.end for run in self._runs if run.first <= self.end < run.end)
                to = min(self.end + generation, of_run)
                self._extending = _Extending(self.end, to, self._mark(self.end, to, THREADS if wait else 1))
            _, to, marked = self._extending
            if not (wait or marked.done()):
                return
            marked.result()
            self.end, self._extending = max(self.end, to), None

    def replace(self, merged: Run, *, wait: bool) -> bool:
        """Make progress towards searching a merged run, which is in RocksDB, instead of its parts. Returns
        whether that is done. `wait` is as in `extend`; call this between searches."""
        if self._marked_to <= merged.first:
            self._put_in_place(merged, self._parts(merged), None)
            return True
        if not self._take_over(wait=wait):
            return False
        if merged not in self._runs:
            self._taking_over = _TakeOver(self._new_presence(merged), self._parts(merged))
        return self._take_over(wait=wait)

    def enlarge(self, *, wait: bool) -> None:
        """Make progress towards larger filters of runs whose filters were made when there was less memory.
        `wait` is as in `extend`; call this between searches."""
        while self._take_over(wait=wait) and self._may_enlarge:
            larger = next(filter(None, map(self._larger_presence, self._runs)), None)
            if larger is None:
                self._may_enlarge = False
            else:
                self._taking_over = _TakeOver(larger, [larger.run])

    def _take_over(self, *, wait: bool) -> bool:
        """Make progress with the filters that are taking over. Returns whether none are."""
        while (step := self._taking_over) is not None:
            if step.marked is not None:
                if not (wait or step.marked.done()):
                    return False
                step.marked.result()
                for table in range(step.table, step.next):
                    for part in step.parts:
                        if (before := self._runs[part]) is not None:
                            before.drop(table)
                step.table, step.marked = step.next, None
            if step.table == self._design.tables:
                self._taking_over = None
                self._put_in_place(step.run, step.parts, step.presence)
            else:
                self._begin_next(step)
        return True

    def _begin_next(self, step: _TakeOver) -> None:
        """Make the filters of the next tables, about as large as each other step's, in the background."""
        blocks = np.cumsum(step.presence.due_blocks)
        until = (blocks[step.table - 1] if step.table else 0) + blocks[-1] / PARTS
        step.next = max(step.table + 1, int(np.searchsorted(blocks, until, side="right")))
        tables = range(step.table, step.next)
        for table in tables:
            step.presence.begin(table)
        step.start, end = max(step.run.first, self._log.first), min(self._marked_to, step.run.end)
        step.marked = self._submit([step.presence], step.start, end, tables)

    def _put_in_place(self, run: Run, parts: list[Run], presence: Presence | None) -> None:
        for part in parts:
            del self._runs[part]
        self._runs[run] = presence
        self._may_enlarge = True  # the parts may have taken more

    def _parts(self, merged: Run) -> list[Run]:
        return [run for run in self._runs if run.is_part_of(merged)]

    @property
    def _marked_to(self) -> int:
        """Anchors below this number are marked in filters, or being marked."""
        return max(self._extending.end, self.end) if self._extending else self.end

    def _mark(self, start: int, end: int, threads: int) -> Future[None]:
        """Mark the anchors of one generation in the filters of the run that has them, and of the one that is
        taking over."""
        targets = []
        for run, presence in self._runs.items():
            if run.first <= start < run.end:
                marked = presence
                if marked is None:
                    marked = self._runs[run] = self._new_presence(run)
                    for table in range(self._design.tables):
                        if self._is_taken_over(run, table):
                            marked.drop(table)
                        else:
                            marked.begin(table)
                targets.append(marked)
        if (step := self._taking_over) is not None and step.run.first <= start < step.run.end:
            targets.append(step.presence)
        return self._submit(targets, start, end, threads=threads)

    def _is_taken_over(self, run: Run, table: int) -> bool:
        step = self._taking_over
        return step is not None and table < step.table and step.run.first <= run.first < step.run.end

    def _submit(
        self,
        targets: list[Presence],
        start: int,
        end: int,
        tables: range | None = None,
        threads: int = 1,
    ) -> Future[None]:
        of_tables = range(self._design.tables) if tables is None else tables
        shares = [of_tables[place::threads] for place in range(threads)]
        return self._background.submit(self._mark_all, self._presences(), targets, start, end, shares)

    def _presences(self) -> list[Presence]:
        made = [presence for presence in self._runs.values() if presence is not None]
        return [*made, *([self._taking_over.presence] if self._taking_over else [])]

    def _new_presence(self, run: Run) -> Presence:
        """Filters of the best size for the run. If memory does not suffice, they are smaller, and filters of
        other runs are halved before anything is marked: those whose bytes prevent the fewest reads."""
        entries = self._entries(run)
        replaced = self._parts(run)
        others = [presence for presence in self._presences() if presence.run not in replaced]
        if (step := self._taking_over) is not None:  # what it replaces goes table by table, as it takes over
            others = [each for each in others if each is step.presence or each.run not in step.parts]
        bits = float(MOST_BITS)
        while True:
            blocks = blocks_of(entries, bits)
            if BLOCK_BYTES * (blocks.sum() + sum(other.due_blocks.sum() for other in others)) <= self.memory:
                break
            halved = min(((*other.cheapest_fold(), other) for other in others), default=None, key=_cost)
            if bits > LEAST_BITS:
                fewer = blocks_of(entries, bits * _STEP)
                saved = BLOCK_BYTES * (blocks - fewer).sum()
                more = (false_positives(entries, fewer) - false_positives(entries, blocks)).sum()
                if halved is None or halved[0] == np.inf or more <= halved[0] * saved:
                    bits *= _STEP
                    continue
            if halved is None or halved[0] == np.inf:
                break
            _, table, other = halved
            other.due_blocks[table] //= 2
        return Presence(self._design, run, entries, blocks)

    def _larger_presence(self, run: Run) -> Presence | None:
        """Filters of a run that are larger by half or more than those it has, if memory allows them without
        smaller ones of other runs."""
        if (before := self._runs[run]) is None:
            return None
        entries, blocks = self._entries(run), before.due_blocks
        room = self.memory // BLOCK_BYTES - sum(int(each.due_blocks.sum()) for each in self._presences())
        bits = float(MOST_BITS)
        while (larger := blocks_of(entries, bits)).sum() >= max(1, _LARGER * blocks.sum()):
            if larger.sum() <= room + blocks.sum():
                return Presence(self._design, run, entries, larger)
            bits *= _STEP
        return None

    def _entries(self, run: Run) -> I64:
        """The number of anchors of a run that entered each table, (T,)."""
        first = max(run.first, self._log.first)
        masks = self._skipped.entries(first, run.end).masks
        tables = np.arange(self._design.tables, dtype=np.uint64)
        skipped = [int((masks >> table & np.uint64(1)).sum()) for table in tables]
        return max(0, run.end - first) - np.array(skipped, np.int64)

    def _mark_all(
        self, kept: list[Presence], targets: list[Presence], start: int, end: int, shares: list[range]
    ) -> None:
        """Mark anchors, the tables of each share in a thread of its own."""
        for presence in kept:
            presence.fold()
        with ThreadPoolExecutor(len(shares)) as threads:
            for first, rows in self._log.slices(start, end):
                if self._closed:
                    return
                masks = self._skipped.masks(first, first + len(rows))
                for presence in targets:
                    list(threads.map(partial(presence.mark, rows, masks), shares))

    def search(self, probing: Probing) -> None:
        """Add this tier's pairs and bucket sizes to `probing`."""
        step, tables = self._taking_over, self._design.tables
        searched = [presence for presence in self._presences() if presence.run.first < self.end]
        by_run = [
            presence.groups_to_read(
                probing.queries, step.table if step is not None and presence is step.presence else tables
            )
            for presence in searched
        ]
        firsts = np.array([presence.run.first - probing.first for presence in searched], np.int64)
        for table in range(tables if by_run else 0):
            some = [slice(*each.edges[table : table + 2]) for each in by_run]
            groups = np.concatenate([each.groups[part] for each, part in zip(by_run, some, strict=True)])
            if len(groups) and not probing.collector.is_full:
                wanted = [each.wanted[part] for each, part in zip(by_run, some, strict=True)]
                read = self._read(table, groups)
                criteria, end = probing.criteria(self._distance, self._dead.bits), self.end - probing.first
                requests = Requests(np.concatenate(wanted), np.cumsum([0, *map(len, wanted)]), firsts)
                probing.collector.add_packed(_match(read, requests, probing.queries, criteria, table, end))

    def _read(self, table: int, groups: U64) -> GroupEntries:
        values = self._store.get(table_family(self._design.families[table]), group_keys(groups))
        self.probes += len(values)
        self.hits += len(values) - values.count(None)
        group_bytes = [value or b"" for value in values]
        edges = np.zeros(len(group_bytes) + 1, np.int64)
        np.cumsum(
            np.fromiter(map(len, group_bytes), np.int64, len(group_bytes)) // ENTRY_BYTES, out=edges[1:]
        )
        return GroupEntries(np.frombuffer(b"".join(group_bytes), np.uint64).reshape(-1, 2), edges)

    def close(self) -> None:
        """Stop updating filters."""
        self._closed = True


def _cost(fold: tuple[float, int, Presence]) -> float:
    return fold[0]


@compiled
def _match(
    groups: GroupEntries, requests: Requests, queries: Queries, criteria: Criteria, table: int, end: int
) -> U64:
    """Pairs of a row and an anchor below `end` in a bucket that it probes, packed as in `PairCollector`.
    Counts the live anchors in buckets."""
    (entries, edges), (wanted, of_runs, firsts) = groups, requests
    distance, dead, enough = criteria
    tables = queries.keys.shape[1]
    pairs = no_pairs()
    for run in range(len(firsts)):
        first = firsts[run]
        for request in range(of_runs[run], of_runs[run + 1]):
            if pairs.size >= enough:
                break
            row, low = np.int64(wanted[request] >> np.uint64(32)), wanted[request] & np.uint64(0xFFFFFFFF)
            fingerprint = queries.fingerprints[row]
            at, to = edges[request], edges[request + 1]
            last = to
            while at < to:
                middle = (at + to) >> 1
                if entries[middle, 1] >> np.uint64(32) < low:
                    at = middle + 1
                else:
                    to = middle
            while at < last and entries[at, 1] >> np.uint64(32) == low:
                number = first + np.int64(entries[at, 1] & np.uint64(0xFFFFFFFF))
                if number >= end:  # these are still searched in RAM
                    break
                apart = popcount(entries[at, 0] ^ fingerprint)
                at += 1
                if number < 0:  # gone: the run begins before the first anchor
                    continue
                count_live(queries.sizes, row * tables + table, number, dead)
                if apart <= distance:
                    pairs = add_pair(pairs, row, number, apart)
    return pairs.packed[: pairs.size]

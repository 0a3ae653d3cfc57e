"""The runs of a store: frozen from generations and merged, as in an LSM tree, in the background of the judge.

    a full generation -> built -> its filter loaded -> a run that answers
    MERGED runs -> built -> its filter loaded -> one run in their place -> their keys reclaimed
    a run whose anchors are gone -> dropped -> its keys reclaimed

At most one generation is being frozen and one merge is in progress. All transitions between these states
happen in `Runs.advance`, between searches. After a restart, interrupted builds are begun anew, and the space
of what was merged is reclaimed.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple

import numpy as np

from stream.compiled import compiled, popcount
from stream.tables.arrays import I64, U64
from stream.tables.design import TABLE_BITS
from stream.tables.runs.build import Built, Content, MergedContent
from stream.tables.runs.building import Building
from stream.tables.runs.filters import (
    BLOCK_BYTES,
    BLOCK_WORDS,
    PIECE_BLOCKS,
    empty_filter,
    folded,
    folds_within,
    groups_to_read,
)
from stream.tables.runs.run import ENTRY_BYTES, FILTER, MERGED, Run, run_named
from stream.tables.search.packed_pairs import add_pair, count_live, no_pairs
from stream.tables.search.probing import Probing
from stream.tables.search.queries import Criteria, Queries
from stream.tables.store.anchors import NumberSet, with_prefix
from stream.tables.store.failures import damage_error
from stream.tables.store.reclaim import Reclaiming
from stream.tables.store.rocks import DEFAULT, RUNS, Store

RUN: Final = b"run/"
"""Prefix of the keys of runs, which are followed by `Run.name`."""
WINDOWED: Final = 8
"""Where the first anchors go one day, a merged run has at most this part of all anchors, because it goes when
its last one does."""


_NOTHING: Final[U64] = np.zeros((0, BLOCK_WORDS), np.uint64)


class _Held:
    """A run in the store, and its filter in RAM."""

    def __init__(self, run: Run, built: Built) -> None:
        self.run: Final = run
        self.built: Final = built
        self.filter: U64 = _NOTHING
        self.folds = -1
        """How often the filter is halved; -1 if it is not there yet."""


class _Loading(NamedTuple):
    """A filter that is being read."""

    held: _Held
    folds: int
    read: Future[U64]


class Runs:
    """The runs of a store. Opening reads their filters."""

    def __init__(
        self,
        store: Store,
        prefix_bits: I64,
        generation: int,
        *,
        memory: int,
        windowed: bool,
        anchors: tuple[NumberSet, int],
        content_of: Callable[[Run], Content],
    ) -> None:
        """`prefix_bits` (T,) are those of all tables, reserves included. `memory` is the size in bytes of all
        filters. With `windowed`, the first anchors go one day, and runs stay small (`WINDOWED`). `anchors`
        are those that are dead or gone, which merges leave out, and how many were ever inserted. `content_of`
        gives what a full generation has. Raises StateError."""
        self._store, self._generation = store, generation
        self.prefix_bits: Final = prefix_bits
        """(T,): those of all tables, reserves included."""
        self._memory, self._windowed = memory, windowed
        self._content_of = content_of
        self._dead, self.count = anchors
        self.first = self._dead.first
        self.probes = self.hits = 0
        """Groups read from RocksDB, and those found there."""
        self._runs = _stored(store, generation, self.first, self.count)
        self._arriving: list[_Held] = []
        """Runs in the store that do not answer yet."""
        self._freezing: Building | None = None
        self._merging: Building | None = None
        self._loading: _Loading | None = None
        self._background = ThreadPoolExecutor(1, "tables-background")
        self._reclaiming = Reclaiming(store)
        self._remove_unfinished()
        for held, folds in self._due_folds():
            held.filter, held.folds = self._read_filter(held, folds), folds
        for merged in {held.run.level: held.run for held in self._runs if held.run.level}.values():
            self._reclaim(merged)

    def _remove_unfinished(self) -> None:
        """Remove what a crash left of runs that were ingested, but do not answer."""
        names, batch, start = {held.run.name for held in self._runs}, self._store.batch(), b""
        while (first := self._store.first_from(RUNS, [start])[0]) is not None:
            name = first[0][: len(Run(0, 0, 0).name)]
            start = (int.from_bytes(name, "big") + 1).to_bytes(len(name), "big")
            if name not in names:
                batch.delete_range(RUNS, name, start)
                self._reclaiming.begin(RUNS, (name, start), "freeze.reclaim")
        self._store.write(batch)

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def end(self) -> int:
        """The anchors below it are in runs that answer, or gone."""
        gone = self.first // self._generation * self._generation
        return max(self._runs[-1].run.end, gone) if self._runs else gone

    def advance(self, first: int, count: int, *, wait: bool) -> None:
        """Install what is built, and start what is due, where the anchors are [first, count).

        With `wait`, returns when nothing more is due. Raises what building and reclaiming raised.
        """
        self.first, self.count = first, count
        while True:
            if self._freezing is not None and (wait or self._freezing.is_built):
                built, self._freezing = self._freezing, None
                self._arriving.append(_Held(built.run, built.finish()))
            if self._merging is not None and (wait or self._merging.is_built):
                built, self._merging = self._merging, None
                self._arriving.append(_Held(built.run, built.finish()))
            self._load_filters(wait=wait)
            for held in [each for each in self._arriving if each.folds >= 0]:
                self._arriving.remove(held)
                self._install(held)
            self._drop_runs()
            idle = not self._arriving
            if self._freezing is None and (due := self._due()) is not None:
                behind = self.count - due.end >= self._generation
                content = self._content_of(due)
                self._freezing, idle = Building(self._store, content, self._memory, urgent=behind), False
            if self._merging is None and (parts := self._mergeable()) is not None:
                self._merging, idle = Building(self._store, parts, self._memory), False
            if not wait or (idle and self._freezing is None and self._merging is None):
                break
        self._reclaiming.check(wait=wait)

    def _due(self) -> Run | None:
        """The next generation, if it is full."""
        frozen = max([self.end, *(held.run.end for held in self._arriving)])
        run = Run(0, frozen // self._generation, self._generation)
        return run if run.end <= self.count else None

    def _mergeable(self) -> Content | None:
        """The parts of the next merge that is due, or None."""
        arriving = [held.run for held in self._arriving]
        for place, held in enumerate(self._runs[: -MERGED + 1]):
            merged, parts = held.run.merged, self._runs[place : place + MERGED]
            if [each.run for each in parts] != merged.parts or merged in arriving or merged.end <= self.first:
                continue
            if not self._windowed or WINDOWED * merged.anchors <= self.count - self.first:
                entries = sum(each.built.entries for each in parts)
                dead = self._dead.part(merged.first, merged.end)
                return MergedContent(merged, self.prefix_bits, dead, self._store.path, entries)
        return None

    def _install(self, held: _Held) -> None:
        """Let a run answer, in place of its parts."""
        run, batch = held.run, self._store.batch()
        batch.put(DEFAULT, RUN + run.name, np.array(held.built, "<u8").tobytes())
        self._stop_loading(run.parts)
        for part in run.parts:
            batch.delete(DEFAULT, RUN + part.name)
        if run.level:
            batch.delete_range(RUNS, *run.bounds_of_parts)
        self._store.write(batch)
        parts = [each for each in self._runs if each.run in run.parts]
        place = self._runs.index(parts[0]) if parts else len(self._runs)
        self._runs[place : place + len(parts)] = [held]
        if run.level:
            self._reclaim(run)

    def _reclaim(self, merged: Run) -> None:
        """Start to free the space of the parts of a merged run, and of those of earlier ones."""
        self._reclaiming.begin(RUNS, merged.bounds_to_parts, "freeze.reclaim")

    def _drop_runs(self) -> None:
        """Drop the runs whose anchors are gone."""
        while self._runs and (run := self._runs[0].run).end <= self.first:
            at_work = [each.run for each in self._arriving]
            at_work += [each.run for each in (self._merging,) if each is not None]
            if any(run in merged.parts for merged in at_work):
                return
            self._stop_loading([run])
            del self._runs[0]
            batch = self._store.batch()
            batch.delete(DEFAULT, RUN + run.name)
            batch.delete_range(RUNS, *run.bounds)
            self._store.write(batch)
            self._reclaiming.begin(RUNS, run.bounds, "drop.run")

    def _stop_loading(self, runs: list[Run]) -> None:
        """Read no filter of these runs any more, whose keys are to be deleted."""
        if self._loading is not None and self._loading.held.run in runs:
            self._loading.read.exception()  # waits
            self._loading = None

    def _due_folds(self) -> list[tuple[_Held, int]]:
        """How often to halve the filter of each run."""
        held = [*self._runs, *self._arriving]
        return list(zip(held, folds_within(tuple(each.built for each in held), self._memory), strict=True))

    def _load_filters(self, *, wait: bool) -> None:
        """Make progress towards the filters that are due: smaller ones at once, others in the background."""
        while True:
            if self._loading is not None:
                if not (wait or self._loading.read.done()):
                    return
                (held, folds, read), self._loading = self._loading, None
                held.filter, held.folds = read.result(), folds
            due = [(held, folds) for held, folds in self._due_folds() if held.folds != folds]
            for held, folds in due:
                while 0 <= held.folds < folds:
                    held.filter, held.folds = folded(held.filter), held.folds + 1
            leaving = [part for each in self._arriving for part in each.run.parts]
            due = [each for each in due if each[0].folds != each[1] and each[0].run not in leaving]
            if not due:
                return
            held, folds = min(due, key=lambda each: each[0].folds)
            self._loading = _Loading(held, folds, self._background.submit(self._read_filter, held, folds))

    def _read_filter(self, held: _Held, folds: int) -> U64:
        """Read a filter, halved so often. Raises DamagedStateError."""
        blocks = held.built.blocks
        present, end = empty_filter(blocks >> folds), 0
        for piece, start in enumerate(range(0, blocks, PIECE_BLOCKS)):
            value, size = (
                self._store.get(RUNS, [held.run.key(FILTER, piece)])[0] or b"",
                min(PIECE_BLOCKS, blocks - start),
            )
            if len(value) != size * BLOCK_BYTES:
                raise damage_error(self._store.path, f"piece {piece} of the filter of {held.run} is missing")
            some = np.frombuffer(value, "<u8").astype(np.uint64, copy=False).reshape(size, BLOCK_WORDS)
            for _ in range(folds):
                some = folded(some)
            present[end : end + len(some)] = some
            end += len(some)
        return present

    def search(self, probing: Probing) -> None:
        """Add the pairs and bucket sizes of all runs to `probing`."""
        for held in self._runs:
            if probing.collector.is_full:
                return
            run, queries = held.run, probing.queries
            low = run.low_bits(self.prefix_bits).astype(np.uint64)
            groups, probes = groups_to_read(queries.keys, held.filter, low)
            if len(groups):
                reads = GroupReads(*self._read(run, groups), probes, low, run.first - probing.first)
                probing.collector.add_packed(_match(reads, queries, probing.criteria))

    def _read(self, run: Run, groups: U64) -> tuple[U64, I64, I64]:
        """The entries (e, 2) of groups (m,) of a run, as in `GroupsToRead`, and where those of each begin and
        end, (m,). A group that many probes need is read once."""
        wanted, which = np.unique(groups, return_inverse=True)
        values = self._store.get(RUNS, run.keys(wanted))
        self.probes += len(values)
        self.hits += len(values) - values.count(None)
        group_bytes = [value or b"" for value in values]
        sizes = np.fromiter(map(len, group_bytes), np.int64, len(group_bytes)) // ENTRY_BYTES
        ends = np.cumsum(sizes)
        entries = np.frombuffer(b"".join(group_bytes), np.uint64).reshape(-1, 2)
        return entries, (ends - sizes)[which], ends[which]

    def close(self) -> None:
        """Cancel builds in progress. Their anchors stay where they are."""
        self._reclaiming.give_up()
        for building in (self._freezing, self._merging):
            if building is not None:
                building.discard()
        self._freezing = self._merging = None
        self._background.shutdown(cancel_futures=True)
        self._reclaiming.close()


def _stored(store: Store, anchors: int, first: int, count: int) -> list[_Held]:
    """The runs of a store that has the anchors [first, count), in order. Raises StateError unless they follow
    each other from the first anchor on, or an earlier one that is gone. Before that, there may be runs that
    are to be dropped."""
    runs: list[_Held] = []
    for name, record in with_prefix(store, RUN):
        try:
            entries, blocks = np.frombuffer(record, "<u8").tolist()
            runs.append(_Held(run_named(name, anchors), Built(entries, blocks)))
        except ValueError:
            raise damage_error(store.path, f"run record {name.hex()} is {record.hex() or 'empty'}") from None
    runs.sort(key=lambda held: held.run.first)
    end = 0
    for held in runs:
        if held.run.first < end or held.run.first > max(end, first):
            there = max(end, first)
            raise damage_error(store.path, f"runs hold anchors up to {there}, and from {held.run.first} on")
        end = held.run.end
    if end > count:
        raise damage_error(store.path, f"runs hold anchors up to {end}, but {count} are counted")
    return runs


class GroupReads(NamedTuple):
    """Probes that read groups of a run."""

    entries: U64
    """(e, 2)"""
    starts: I64
    """(m,): the first entry that each probe has read."""
    ends: I64
    """(m,): the one after the last."""
    probes: U64
    """(m,): as in `GroupsToRead`."""
    low: U64
    """(T,): bits of each table's prefix that are in the entries."""
    first: int
    """Number of the run's first anchor, relative to the first one of the index."""


@compiled
def _match(reads: GroupReads, queries: Queries, criteria: Criteria) -> U64:
    """Pairs of a row and an anchor in a bucket that it probes, packed as in `PairCollector`. Counts the live
    anchors in buckets."""
    entries, starts, ends, probes, low_bits, first = reads
    distance, dead, enough = criteria
    tables = queries.keys.shape[1]
    pairs = no_pairs()
    for request in range(len(probes)):
        if pairs.size >= enough:
            break
        probe = np.int64(probes[request])
        query = probe // tables
        key = queries.keys[query, probe % tables]
        table, prefix = key & np.uint64((1 << TABLE_BITS) - 1), key >> np.uint64(TABLE_BITS)
        low = prefix & ((np.uint64(1) << low_bits[table]) - np.uint64(1))
        row, fingerprint = queries.rows[query], queries.fingerprints[query]
        at, to = starts[request], ends[request]
        last = to
        while at < to:
            middle = (at + to) >> 1
            if entries[middle, 1] >> np.uint64(32) < low:
                at = middle + 1
            else:
                to = middle
        while at < last and entries[at, 1] >> np.uint64(32) == low:
            number = first + np.int64(entries[at, 1] & np.uint64(0xFFFFFFFF))
            apart = popcount(entries[at, 0] ^ fingerprint)
            at += 1
            if number < 0:  # gone: the run begins before the first anchor
                continue
            count_live(queries.sizes, probe, number, dead)
            if apart <= distance:
                pairs = add_pair(pairs, row, number, apart)
    return pairs.packed[: pairs.size]

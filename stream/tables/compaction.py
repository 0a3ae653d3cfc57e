"""Compaction, as in an LSM tree: freezes anchors into runs in RocksDB and merges runs into larger ones, in
the background of the judge.

    a full generation -> freezing -> a run
    MERGED runs -> merging -> one run in their place -> their keys reclaimed
    a run whose anchors are gone -> dropped -> its keys reclaimed

At most one generation is being frozen and one merge is in progress; each builds its files in the background.
All transitions between these states happen in `Compaction.advance`. After a restart, interrupted builds and
reclaims are repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stream.tables.cold.freeze import Freezing
from stream.tables.cold.runs import LEVELS, MERGED, Run, generation_after, merged_run, stored_run
from stream.tables.cold.tier import ColdTier
from stream.tables.design import Design
from stream.tables.store.anchors import IndexedAnchors, with_prefix
from stream.tables.store.failures import damage_error
from stream.tables.store.reclaim import Reclaiming
from stream.tables.store.rocks import DEFAULT, Store, table_family

RUN: Final = b"run/"
"""Prefix of the keys of runs, which are followed by the number of their first column family."""


WINDOWED: Final = 8
"""Where the first anchors go one day, a merged run has at most this part of all anchors, because it goes when
its last one does."""


@dataclass(slots=True, eq=False)
class _Building:
    """A run in progress: its files, and the first of its anchors that is read for them. A merged run then
    takes over from its parts in the cold tier."""

    files: Freezing
    start: int
    is_ingested: bool = False


class Compaction:
    """The runs of a store, and the builds that create them. `runs` are those in the store (`stored_runs`)."""

    def __init__(
        self,
        store: Store,
        design: Design,
        generation: int,
        runs: list[Run],
        anchors: IndexedAnchors,
        cold: ColdTier,
        *,
        windowed: bool,
    ) -> None:
        """With `windowed`, the first anchors go one day, and runs stay small (`WINDOWED`)."""
        self._windowed = windowed
        self._store, self._design, self._generation = store, design, generation
        self._anchors = anchors
        self._cold = cold
        self._runs = list(runs)
        self._last = runs[-1] if runs else None
        """The last run. Its record stays when its anchors are gone, so that no number is used again."""
        self._freezing: _Building | None = None
        self._merging: _Building | None = None
        self._reclaiming = Reclaiming(store)
        for run in runs:
            cold.add(run)

    @property
    def runs(self) -> int:
        """Number of runs."""
        return len(self._runs)

    @property
    def frozen(self) -> int:
        """The anchors below this number are in runs, or gone."""
        first = self._anchors.log.first
        return max(self._last.end, first) if self._last else first

    @property
    def reads_from(self) -> int:
        """Anchors below this number are not read any more."""
        builds = (self._freezing, self._merging)
        return min((build.start for build in builds if build is not None), default=self._anchors.log.count)

    def recover(self) -> None:
        """Repeat the reclaims that the last process may not have completed. Called once."""
        for merged in {run.level: run for run in self._runs if run.level}.values():
            self._reclaim(merged)

    def advance(self, *, wait: bool) -> None:
        """Install what is built, and start what is due.

        With `wait`, returns when nothing more is due. Raises what building and reclaiming raised.
        """
        while True:
            if self._freezing is not None and (wait or self._freezing.files.is_built):
                self._install_generation(self._freezing)
            if self._merging is not None and (wait or self._merging.files.is_built):
                self._install_merged(self._merging, wait=wait)
            self._drop_runs()
            if self._freezing is None and self._anchors.log.count >= self._next.end:
                self._freezing = self._build(self._next)
            if self._merging is None and (due := self._mergeable()) is not None:
                self._merging = self._build(due)
            if not wait or (self._freezing is None and self._merging is None):
                break
        self._reclaiming.check(wait=wait)

    @property
    def _next(self) -> Run:
        """The next generation."""
        return generation_after(self._last, self._anchors.log.first, self._generation)

    def _install_generation(self, built: _Building) -> None:
        built.files.finish()
        self._freezing = None
        run, batch = built.files.run, self._store.batch()
        if self._last is not None and self._last not in self._runs:
            batch.delete(DEFAULT, self._key(self._last))
        self._runs.append(run)
        self._last = run
        self._cold.add(run)
        batch.put(DEFAULT, self._key(run), run.record)
        self._store.write(batch)

    def _drop_runs(self) -> None:
        """Drop the runs whose anchors are gone."""
        while self._runs and self._runs[0].end <= self._anchors.log.first:
            run = self._runs[0]
            merging = self._merging is not None and run.is_part_of(self._merging.files.run)
            if merging or not self._cold.drop(run):
                return
            del self._runs[0]
            batch = self._store.batch()
            if run is not self._last:
                batch.delete(DEFAULT, self._key(run))
            for family in self._design.families:
                batch.delete_range(table_family(family), *run.bounds)
            self._store.write(batch)
            self._reclaiming.begin(self._families, run.bounds, "drop.run")

    @property
    def _families(self) -> list[str]:
        return [table_family(family) for family in self._design.families]

    def _reclaim(self, merged: Run) -> None:
        """Start to free the space of the parts of a merged run, and of those of earlier ones."""
        self._reclaiming.begin(self._families, merged.bounds_to_parts, "freeze.reclaim")

    def _mergeable(self) -> Run | None:
        """The next run that is due to be merged, or None."""
        first, count = self._anchors.log.first, self._anchors.log.count
        window = count - first
        for place, run in enumerate(self._runs[: -MERGED + 1]):
            last = self._runs[place + MERGED - 1]
            whole = run.number % MERGED == 0 and last[:2] == (run.level, run.number + MERGED - 1)
            if whole and run.level < LEVELS:
                merged = merged_run(self._runs[place : place + MERGED])
                if first < merged.end and (not self._windowed or WINDOWED * merged.anchors <= window):
                    return merged
        return None

    def _install_merged(self, built: _Building, *, wait: bool) -> None:
        if not built.is_ingested:
            built.files.finish()
            built.is_ingested = True
        run, batch = built.files.run, self._store.batch()
        if not self._cold.replace(run, wait=wait):
            return
        self._merging = None
        parts = [part for part in self._runs if part.is_part_of(run)]
        place = self._runs.index(parts[0])
        self._runs[place : place + len(parts)] = [run]
        if self._last in parts:
            self._last = run
        batch.put(DEFAULT, self._key(run), run.record)
        for part in parts:
            batch.delete(DEFAULT, self._key(part))
        for family in self._design.families:
            batch.delete_range(table_family(family), *run.bounds_of_parts)
        self._store.write(batch)
        self._reclaim(run)

    def _key(self, run: Run) -> bytes:
        return _keys(self._design) + run.level.to_bytes(1, "big") + run.number.to_bytes(3, "big")

    def _build(self, run: Run) -> _Building:
        start = max(run.first, self._anchors.log.first)
        rows = (rows for _, rows in self._anchors.log.slices(start, run.end))  # read by its thread
        skips = self._anchors.skipped.entries(start, run.end)
        return _Building(Freezing(self._store, self._design, run, rows, skips), start)

    def close(self) -> None:
        """Cancel builds in progress. Their anchors stay where they are."""
        self._reclaiming.give_up()
        if self._freezing is not None:
            self._freezing.files.discard()
        if self._merging is not None:
            self._merging.files.discard()
        self._freezing = self._merging = None
        self._reclaiming.close()


def stored_runs(store: Store, design: Design, first: int, count: int) -> list[Run]:
    """The runs of a design in a store that has the anchors [first, count), in order. Raises StateError unless
    they follow each other from the first anchor on, or an earlier one that is gone. Before that, there may be
    runs that are to be dropped."""
    runs: list[Run] = []
    for key, record in with_prefix(store, _keys(design)):
        try:
            runs.append(stored_run(key, record))
        except ValueError:
            raise damage_error(store.path, f"run record {key.hex()} is {record.hex() or 'empty'}") from None
    runs.sort(key=lambda run: run.first)
    end = 0
    for run in runs:
        if run.first < end or run.first > max(end, first):
            held = max(end, first)
            raise damage_error(store.path, f"runs hold anchors up to {held}, and from {run.first} on")
        end = run.end
    if end > count:
        raise damage_error(store.path, f"runs hold anchors up to {end}, but {count} are counted")
    return runs


def _keys(design: Design) -> bytes:
    return RUN + design.families.start.to_bytes(1, "big")

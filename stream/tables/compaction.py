"""Compaction, as in an LSM tree: freezes anchors into runs in RocksDB and merges runs into larger ones, in
the background of the judge.

    a full generation -> freezing -> a run
    MERGED runs -> merging -> one run in their place -> their keys reclaimed

At most one generation is being frozen and one merge is in progress; each builds its files in the background.
All transitions between these states happen in `Compaction.advance`. After a restart, interrupted builds and
reclaims are repeated.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from stream.failpoints import reach
from stream.tables.cold.freeze import Freezing
from stream.tables.cold.runs import LEVELS, MERGED, Run, generation_after, merged_run, stored_run
from stream.tables.cold.tier import ColdTier
from stream.tables.design import Design
from stream.tables.store.anchors import IndexedAnchors, with_prefix
from stream.tables.store.failures import damage_error
from stream.tables.store.rocks import DEFAULT, Store, table_family

RUN: Final = b"run/"
"""Prefix of the keys of runs, which are followed by the number of their first column family."""


@dataclass(slots=True, eq=False)
class _Merging:
    """A merge in progress: the files of the new run, which then takes over from its parts in the cold
    tier."""

    files: Freezing
    is_ingested: bool = False


class _Reclaiming:
    """Frees the disk space of runs that were merged, in a thread of its own."""

    def __init__(self, store: Store, design: Design) -> None:
        self._store, self._design = store, design
        self._thread = ThreadPoolExecutor(1, "reclaim")
        self._under_way: list[Future[None]] = []
        self._closed = False

    def begin(self, merged: Run) -> None:
        """Start to reclaim the parts of a merged run."""
        self._under_way.append(self._thread.submit(self._reclaim, merged))

    def _reclaim(self, merged: Run) -> None:
        for family in self._design.families:
            if not self._closed:
                reach("freeze.reclaim")
                self._store.reclaim(table_family(family), *merged.bounds_of_parts)

    def check(self, *, wait: bool) -> None:
        """Raise what reclaiming has raised. With `wait`, waits until it is done."""
        for ended in [each for each in self._under_way if wait or each.done()]:
            self._under_way.remove(ended)
            ended.result()

    def give_up(self) -> None:
        """Start no further table."""
        self._closed = True

    def close(self) -> None:
        """Wait for the table that is being reclaimed."""
        self._thread.shutdown(cancel_futures=True)


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
    ) -> None:
        self._store, self._design, self._generation = store, design, generation
        self._anchors = anchors
        self._cold = cold
        self._runs = runs
        self._freezing: Freezing | None = None
        self._merging: _Merging | None = None
        self._reclaiming = _Reclaiming(store, design)
        for run in runs:
            cold.add(run)

    @property
    def runs(self) -> int:
        """Number of runs."""
        return len(self._runs)

    @property
    def frozen(self) -> int:
        """The number after the last anchor that is in a run."""
        return self._runs[-1].end if self._runs else self._anchors.log.first

    def recover(self) -> None:
        """Repeat the reclaims that the last process may not have completed. Called once."""
        for merged in {run.level: run for run in self._runs if run.level}.values():
            self._reclaiming.begin(merged)

    def advance(self, *, wait: bool) -> None:
        """Install what is built, and start what is due.

        With `wait`, returns when nothing more is due. Raises what building and reclaiming raised.
        """
        while True:
            if self._freezing is not None and (wait or self._freezing.is_built):
                self._install_generation(self._freezing)
            if self._merging is not None and (wait or self._merging.files.is_built):
                self._install_merged(self._merging, wait=wait)
            if self._freezing is None and self._anchors.log.count >= self.frozen + self._generation:
                self._freezing = self._freeze()
            if self._merging is None and (due := self._mergeable()) is not None:
                self._merging = self._merge(due)
            if not wait or (self._freezing is None and self._merging is None):
                break
        self._reclaiming.check(wait=wait)

    def _freeze(self) -> Freezing:
        last = self._runs[-1] if self._runs else None
        return self._build(generation_after(last, self._anchors.log.first, self._generation))

    def _install_generation(self, built: Freezing) -> None:
        built.finish()
        self._freezing = None
        self._runs.append(built.run)
        self._cold.add(built.run)
        batch = self._store.batch()
        batch.put(DEFAULT, self._key(built.run), built.run.record)
        self._store.write(batch)

    def _mergeable(self) -> Run | None:
        """The next run that is due to be merged, or None."""
        for place, run in enumerate(self._runs[: -MERGED + 1]):
            whole = run.number % MERGED == 0 and self._runs[place + MERGED - 1].level == run.level
            if whole and run.level < LEVELS:
                return merged_run(self._runs[place : place + MERGED], self._anchors.log.first)
        return None

    def _merge(self, run: Run) -> _Merging:
        return _Merging(self._build(run))

    def _install_merged(self, built: _Merging, *, wait: bool) -> None:
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
        batch.put(DEFAULT, self._key(run), run.record)
        for part in parts:
            batch.delete(DEFAULT, self._key(part))
        for family in self._design.families:
            batch.delete_range(table_family(family), *run.bounds_of_parts)
        self._store.write(batch)
        self._reclaiming.begin(run)

    def _key(self, run: Run) -> bytes:
        return _keys(self._design) + run.level.to_bytes(1, "big") + run.number.to_bytes(3, "big")

    def _build(self, run: Run) -> Freezing:
        rows = (rows for _, rows in self._anchors.log.slices(run.first, run.end))  # read by its thread
        skips = self._anchors.skipped.entries(run.first, run.end)
        return Freezing(self._store, self._design, run, rows, skips)

    def close(self) -> None:
        """Cancel builds in progress. Their anchors stay where they are."""
        self._reclaiming.give_up()
        if self._freezing is not None:
            self._freezing.discard()
        if self._merging is not None:
            self._merging.files.discard()
        self._freezing = self._merging = None
        self._reclaiming.close()


def stored_runs(store: Store, design: Design, first: int, count: int) -> list[Run]:
    """The runs of a design in a store that has the anchors [first, count), in order. Raises StateError unless
    they follow each other from the first anchor on, or an earlier one that is gone."""
    runs: list[Run] = []
    for key, record in with_prefix(store, _keys(design)):
        try:
            runs.append(stored_run(key, record))
        except ValueError:
            raise damage_error(store.path, f"run record {key.hex()} is {record.hex() or 'empty'}") from None
    runs.sort(key=lambda run: run.first)
    end = min(first, runs[0].first) if runs else first
    for run in runs:
        if run.first != end:
            raise damage_error(store.path, f"runs hold anchors up to {end}, and from {run.first} on")
        end = run.end
    if end > count:
        raise damage_error(store.path, f"runs hold anchors up to {end}, but {count} are counted")
    return runs


def _keys(design: Design) -> bytes:
    return RUN + design.families.start.to_bytes(1, "big")

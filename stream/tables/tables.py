"""64-bit words and fingerprints -> candidates: three tiers, one answer.

The tables are of words, and distances are between fingerprints: of one page both may be the same. What is too
far apart ends here, in RAM, before anybody asks RocksDB for a sketch.

The newest anchors are searched in RAM (`hot`), older ones there too, packed (`warm`), the oldest in RocksDB
(`cold`). Anchors are frozen in generations of fixed size, and these merged, whatever the batches were, so
equal anchors make equal state.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.errors import StateError
from stream.failpoints import reach
from stream.tables import freeze
from stream.tables.anchors import AnchorLog, Dead, Skipped, with_prefix
from stream.tables.arrays import I64, U8, U64
from stream.tables.candidates import Candidates
from stream.tables.cold import ColdTier
from stream.tables.contents import joined
from stream.tables.design import Design
from stream.tables.failures import damaged
from stream.tables.found import LAST_ANCHOR
from stream.tables.hot import PACE, HotTier, Pace
from stream.tables.probing import ALL, Nearest, Probing
from stream.tables.rocks import DEFAULT, Batch, Store, table_family
from stream.tables.runs import LEVELS, MERGED, Run, run_of
from stream.tables.warm import WarmTier

LAYOUT: Final = b"tables/layout"
RUN: Final = b"run/"
HEADS_SHARE: Final = 16
"""Of the memory, a sixteenth is for the heads of chains,"""
PRESENCE_SHARE: Final = 16
"""as much for what RocksDB is asked for; the rest holds packed anchors. Those in chains come on top."""
ROWS_AT_ONCE: Final = 1 << 12
"""Rows searched at once: what they meet in the cold tier is some MiB."""
PAIRS_AT_ONCE: Final = 1 << 21
"""Pairs found at once, 16 MiB in each of a few arrays. Spam gives a row ten thousand: where that many turn up
the search begins again with fewer rows."""


@dataclass(slots=True)
class TablesStats:
    """Counters since opening, and sizes as they are."""

    hot_probes: int = 0
    """Buckets looked up in RAM."""
    rocks_probes: int = 0
    """Groups looked up in RocksDB."""
    rocks_hits: int = 0
    """Of these, groups that were there."""
    generations: int = 0
    """Generations frozen into RocksDB."""
    runs: int = 0
    """What they were merged to."""
    hot_anchors: int = 0
    """Anchors searched in chains."""
    warm_anchors: int = 0
    """Anchors searched packed in RAM."""
    cold_anchors: int = 0
    """Anchors searched in RocksDB."""
    dead_anchors: int = 0
    skipping_anchors: int = 0
    """Anchors that stayed out of a full bucket."""
    digest: int = 0
    """Of both."""
    hot_heads: int = 0
    """Heads of the hot tier, 5 bytes each."""

    @property
    def ram_anchors(self) -> int:
        """Anchors searched in RAM."""
        return self.hot_anchors + self.warm_anchors


class Tables:
    """The index of live anchors, numbered 0, 1, 2, ... in insertion order.

    Opening recovers everything from the store. Raises StateError when the store was made with another
    design or another `generation`.

    `memory` are bytes for all three tiers; anchors not yet packed are in RAM whatever it says.
    """

    def __init__(
        self,
        store: Store,
        design: Design,
        *,
        flip_bits: int,
        flips: int,
        distance: int,
        cap: int | None,
        memory: int,
        generation: int,
        pace: Pace = PACE,
    ) -> None:
        self._store = store
        self._design = design
        self._flip_bits = flip_bits
        self._flips = flips
        self._cap = cap
        self._size = generation
        freeze.clean(store.path)
        self._check_layout()
        self._log = AnchorLog(store)
        self._dead = Dead(store)
        self._skipped = Skipped(store)
        self._runs = self._stored_runs()
        self._freezing: freeze.Freezing | None = None
        self._merging: freeze.Freezing | None = None
        self._prepared: Future[None] | None = None
        self._reclaimed: list[Future[None]] = []
        self._closed = False
        self._rows_at_once = ROWS_AT_ONCE
        self._background = ThreadPoolExecutor(1, "tables-background")
        self._reclaiming = ThreadPoolExecutor(1, "reclaim")
        self._warm = WarmTier(
            design,
            self._log,
            self._skipped,
            self._dead,
            self._background,
            distance=distance,
            memory=memory - memory // HEADS_SHARE - memory // PRESENCE_SHARE,
            generation=generation,
        )
        self._hot = HotTier(
            design,
            self._skipped,
            self._dead,
            distance=distance,
            memory=memory // HEADS_SHARE,
            room=generation + self._warm.largest_step,
            pace=pace,
        )
        self._cold = ColdTier(
            store,
            design,
            self._log,
            self._skipped,
            self._dead,
            self._background,
            distance=distance,
            memory=memory // PRESENCE_SHARE,
        )
        for run in self._runs:
            self._cold.add(run)
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    def _load(self) -> None:
        evicted = self._evictable()
        with ThreadPoolExecutor(1) as beside:
            loaded = beside.submit(self._hot.load, evicted, self.count, self._logged(evicted, self.count))
            self._shift(evicted, wait=True)
            loaded.result()
        for merged in {run.level: run for run in self._runs if run.level}.values():
            self._reclaim(merged)  # perhaps it was not done when the last process ended

    def _stored_runs(self) -> list[Run]:
        """In order of anchors; they follow each other from anchor 0 on."""
        runs = [
            run_of(key[0], int.from_bytes(key[1:], "big"), self._size)
            for key, _ in with_prefix(self._store, RUN)
        ]
        runs.sort(key=lambda run: run.first)
        for run, end in zip(runs, [0, *(run.end for run in runs)], strict=False):
            if run.first != end:
                raise damaged(self._store.path, f"runs hold anchors up to {end}, and from {run.first} on")
        if runs and runs[-1].end > self.count:
            raise damaged(
                self._store.path, f"runs hold anchors up to {runs[-1].end}, {self.count} are counted"
            )
        return runs

    def _check_layout(self) -> None:
        design, stored = self._design, self._store.get(DEFAULT, [LAYOUT])[0]
        layout = [design.blocks, design.choose, design.width, self._size]
        if stored is None:
            batch = self._store.batch()
            batch.put(DEFAULT, LAYOUT, np.array(layout, "<u8").tobytes())
            self._store.write(batch)
            return
        options = ("blocks", "choose", "width", "tables_generation")
        for option, was, now in zip(options, np.frombuffer(stored, "<u8").tolist(), layout, strict=True):
            if was != now:
                raise StateError(
                    f"{option}: state directory {self._store.path} was made with {was}, not {now}"
                )

    @property
    def count(self) -> int:
        """Anchors ever inserted; the next one's number."""
        return self._log.count

    @property
    def stats(self) -> TablesStats:
        """Counters and sizes now."""
        return TablesStats(
            hot_probes=self._hot.probes,
            rocks_probes=self._cold.probes,
            rocks_hits=self._cold.hits,
            generations=self._frozen // self._size,
            runs=len(self._runs),
            hot_anchors=self.count - self._hot.floor,
            warm_anchors=self._warm.end - self._warm.floor,
            cold_anchors=self._cold.anchors,
            dead_anchors=self._dead.count,
            skipping_anchors=self._skipped.count,
            digest=joined(self._dead.digest, self._skipped.digest),
            hot_heads=self._hot.heads,
        )

    def search(self, fingerprints: U64, uncertain: U8, words: U64 | None = None) -> Candidates:
        """Live anchors that entered a bucket probed for a row, at most `distance` bits from it.

        `fingerprints` has shape (n,); `uncertain` lists bit indexes, least certain first, shape (n, 32);
        `words` (n,), where None, are the fingerprints.
        """
        parts = list(self.searches(fingerprints, uncertain, words))
        if len(parts) == 1:
            return parts[0][1]
        sizes = [part.bucket_sizes for _, part in parts if part.bucket_sizes is not None]
        return Candidates(
            np.concatenate([part.row + first for first, part in parts]),
            np.concatenate([part.anchor for _, part in parts]),
            np.concatenate([part.distance for _, part in parts]),
            np.concatenate(sizes) if sizes else None,
            [probing for _, part in parts for probing in part.probed],
        )

    def searches(
        self,
        fingerprints: U64,
        uncertain: U8,
        words: U64 | None = None,
        nearest: Callable[[], Nearest] | None = None,
    ) -> Iterator[tuple[int, Candidates]]:
        """What `search` gives, in parts that take little memory: of the rows from the first number on, in
        which they are counted from 0. Where very many are found, `nearest` is asked which of them are wanted;
        of the others some may be among them."""
        words, start, wanted = fingerprints if words is None else words, 0, ALL
        while start < max(1, len(fingerprints)):
            rows = max(1, min(self._rows_at_once, len(fingerprints) - start))
            some = slice(start, start + rows)
            found = self._search(words[some], fingerprints[some], uncertain[some], wanted)
            many = found is None or len(found.row) > PAIRS_AT_ONCE // 4
            if many and nearest is not None:
                wanted, nearest = nearest(), None
                if found is None:
                    continue
            if found is None:
                self._rows_at_once = max(1, rows // 8)
                continue
            yield start, found
            start += rows
            if rows == self._rows_at_once and len(found.row) < PAIRS_AT_ONCE // 4:
                self._rows_at_once = min(2 * rows, ROWS_AT_ONCE)

    def _search(self, words: U64, fingerprints: U64, uncertain: U8, wanted: Nearest) -> Candidates | None:
        """None where there are too many pairs for so many rows."""
        counted = self._cap is not None
        most = PAIRS_AT_ONCE if len(words) > 1 else sys.maxsize
        probing = Probing(
            self._design, words, fingerprints, uncertain, self._flip_bits, self._flips, counted, most, wanted
        )
        self._hot.search(probing)
        self._warm.search(probing)
        self._cold.search(probing)
        if probing.found.too_many:
            return None
        row, anchor, distance = probing.found.pairs()
        if self._dead.count:
            live = ~self._dead.test(anchor)
            row, anchor, distance = row[live], anchor[live], distance[live]
        sizes = None
        if probing.sizes is not None:
            sizes = probing.sizes.astype(np.uint32).reshape(-1, self._design.tables)
        return Candidates(row, anchor, distance, sizes, [probing])

    def insert(
        self, batch: Batch, fingerprints: U64, skipped: dict[int, int], words: U64 | None = None
    ) -> None:
        """Add anchors, all rows of `fingerprints`, numbered from `count`.

        `words` (n,), where None, are the fingerprints. `skipped` maps an index in this call to a bit mask of
        tables whose full bucket that anchor does not enter (rule 16). The caller writes `batch`; RAM knows
        the anchors at once.
        """
        if self.count + len(fingerprints) > LAST_ANCHOR:
            raise StateError(f"state directory {self._store.path}: {self.count} anchors, the index is full")
        self._skipped.add(batch, self.count, skipped)
        rows = np.column_stack([fingerprints if words is None else words, fingerprints])
        self._hot.insert(rows)
        self._log.append(batch, rows)

    def kill(self, batch: Batch, anchors: I64) -> None:
        """Superseded or expired: never a candidate again, and no longer counted in buckets."""
        if len(anchors) and (anchors.min() < 0 or anchors.max() >= self.count):
            raise ValueError(f"anchors to kill must be below {self.count}")
        self._dead.kill(batch, anchors)
        self._hot.forget(anchors)

    def alive(self, anchors: I64) -> NDArray[np.bool_]:
        """Which of these anchors may still be candidates."""
        return ~self._dead.test(anchors)

    def maintain(self, *, wait: bool = False) -> None:
        """Freeze generations that are due, in the background; called after each `Store.write`.

        With `wait`, returns when nothing is due any more. Raises what freezing raised.
        """
        while True:
            if self._freezing is not None and (wait or self._freezing.built):
                self._finish_generation(self._freezing)
            if self._merging is not None and (wait or self._is_merged()):
                self._finish_merge(self._merging)
            if self._freezing is None and self.count >= self._frozen + self._size:
                self._freezing = self._start_generation()
            if self._merging is None and (due := self._mergeable()) is not None:
                self._merging = self._start_merge(due)
            if not wait or (self._freezing is None and self._merging is None):
                break
        for reclaimed in [each for each in self._reclaimed if wait or each.done()]:
            self._reclaimed.remove(reclaimed)
            reclaimed.result()
        self._shift(self._evictable(), wait=wait)
        self._hot.evict(self._warm.end)

    def _shift(self, evicted: int, *, wait: bool) -> None:
        """Have the warm tier take what the hot one lets go, and the cold one what is too much for that."""
        self._cold.extend(max(0, evicted - self._warm.budget), self._size, wait=wait)
        self._warm.drop(self._cold.anchors)
        self._warm.extend(evicted, wait=wait)

    @property
    def _frozen(self) -> int:
        """Anchors that are in runs."""
        return self._runs[-1].end if self._runs else 0

    def _start_generation(self) -> freeze.Freezing:
        run = run_of(0, self._frozen // self._size, self._size)
        rows = self._hot.rows(run.first, run.end)
        return freeze.Freezing(self._store, self._design, run, [rows], self._skipped.some(run.first, run.end))

    def _mergeable(self) -> Run | None:
        """The next run to make of others."""
        for place, run in enumerate(self._runs[: -MERGED + 1]):
            whole = run.number % MERGED == 0 and self._runs[place + MERGED - 1].level == run.level
            if whole and run.level < LEVELS:
                return run.merged
        return None

    def _start_merge(self, run: Run) -> freeze.Freezing:
        self._prepared = self._cold.prepare(run)
        rows = self._logged(run.first, run.end)
        return freeze.Freezing(self._store, self._design, run, rows, self._skipped.some(run.first, run.end))

    def _logged(self, start: int, end: int) -> Iterator[U64]:
        """Rows of the anchors [start, end), slice after slice."""
        return (rows for _, rows in self._log.slices(start, end))

    def _is_merged(self) -> bool:
        prepared = self._prepared is not None and self._prepared.done()
        return prepared and self._merging is not None and self._merging.built

    def _finish_generation(self, freezing: freeze.Freezing) -> None:
        freezing.finish()
        self._freezing = None
        self._runs.append(freezing.run)
        self._cold.add(freezing.run)
        batch = self._store.batch()
        batch.put(DEFAULT, _run_key(freezing.run), b"")
        self._store.write(batch)

    def _finish_merge(self, merging: freeze.Freezing) -> None:
        merging.finish()
        if self._prepared is not None:
            self._prepared.result()
        self._merging = self._prepared = None
        run, batch = merging.run, self._store.batch()
        place = self._runs.index(run.parts[0])
        self._runs[place : place + MERGED] = [run]
        self._cold.replace(run)
        batch.put(DEFAULT, _run_key(run), b"")
        for part in run.parts:
            batch.delete(DEFAULT, _run_key(part))
        for table in range(self._design.tables):
            batch.delete_range(table_family(table), *_bounds_of_parts(run))
        self._store.write(batch)
        self._reclaim(run)

    def _reclaim(self, merged: Run) -> None:
        """Give the disk back that runs took which were merged."""

        def reclaim() -> None:
            for table in range(self._design.tables):
                if not self._closed:
                    reach("freeze.reclaim")
                    self._store.reclaim(table_family(table), *_bounds_of_parts(merged))

        self._reclaimed.append(self._reclaiming.submit(reclaim))

    def _evictable(self) -> int:
        """Anchors that the hot tier may let go: all that are in runs, once they are many."""
        many = self._frozen - self._warm.end >= self._warm.step
        return self._frozen if many else self._hot.floor

    def close(self) -> None:
        """Drop what is being frozen or merged; the store stays open."""
        self._closed = True
        self._cold.close()
        for freezing in (self._freezing, self._merging):
            if freezing is not None:
                freezing.discard()
        self._freezing = self._merging = None
        self._background.shutdown(cancel_futures=True)
        self._reclaiming.shutdown(cancel_futures=True)
        freeze.clean(self._store.path)


def _run_key(run: Run) -> bytes:
    return RUN + run.level.to_bytes(1, "big") + run.number.to_bytes(3, "big")


def _bounds_of_parts(merged: Run) -> tuple[bytes, bytes]:
    """Keys of what `merged` was made of, and of all before it on that level: merged too, once reclaimed."""
    return run_of(merged.level - 1, 0, 1).bounds[0], merged.parts[-1].bounds[1]

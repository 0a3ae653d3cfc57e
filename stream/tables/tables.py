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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.errors import StateError
from stream.tables import freeze
from stream.tables.anchors import AnchorLog, Dead, Skipped
from stream.tables.arrays import I64, U8, U64
from stream.tables.candidates import Candidates
from stream.tables.cold import ColdTier
from stream.tables.compaction import Compaction, stored_runs
from stream.tables.contents import joined
from stream.tables.design import Design
from stream.tables.found import LAST_ANCHOR
from stream.tables.hot import PACE, HotTier, Pace
from stream.tables.probing import ALL, Nearest, Probing
from stream.tables.rocks import DEFAULT, Batch, Store
from stream.tables.warm import WarmTier

LAYOUT: Final = b"tables/layout"
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
        runs = stored_runs(store, generation, self.count)
        self._rows_at_once = ROWS_AT_ONCE
        self._background = ThreadPoolExecutor(1, "tables-background")
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
        self._compaction = Compaction(
            store, design, generation, runs, self._log, self._skipped, self._hot, self._cold
        )
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    def _load(self) -> None:
        evicted = self._evictable()
        with ThreadPoolExecutor(1) as beside:
            rows = (rows for _, rows in self._log.slices(evicted, self.count))
            loaded = beside.submit(self._hot.load, evicted, self.count, rows)
            self._shift(evicted, wait=True)
            loaded.result()
        self._compaction.recover()

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
            generations=self._compaction.frozen // self._size,
            runs=self._compaction.runs,
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
        self._compaction.advance(wait=wait)
        self._shift(self._evictable(), wait=wait)
        self._hot.evict(self._warm.end)

    def _shift(self, evicted: int, *, wait: bool) -> None:
        """Have the warm tier take what the hot one lets go, and the cold one what is too much for that."""
        self._cold.extend(max(0, evicted - self._warm.budget), self._size, wait=wait)
        self._warm.drop(self._cold.anchors)
        self._warm.extend(evicted, wait=wait)

    def _evictable(self) -> int:
        """Anchors that the hot tier may let go: all that are in runs, once they are many."""
        frozen = self._compaction.frozen
        many = frozen - self._warm.end >= self._warm.step
        return frozen if many else self._hot.floor

    def close(self) -> None:
        """Drop what is being frozen or merged; the store stays open."""
        self._cold.close()
        self._compaction.close()
        self._background.shutdown(cancel_futures=True)
        freeze.clean(self._store.path)

"""64-bit words and fingerprints -> candidates: two tiers, one answer.

The tables are of words, and distances are between fingerprints: of one page both may be the same. What is too
far apart ends here, in RAM, before anybody asks RocksDB for a sketch.

The newest anchors are searched in RAM (`hot`), older ones in RocksDB (`cold`). Anchors are frozen in
generations of fixed size, whatever the batches were, so equal anchors make equal state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.errors import StateError
from stream.tables import freeze
from stream.tables.anchors import AnchorLog, Dead, Skipped, with_prefix
from stream.tables.candidates import I64, LAST_ANCHOR, Candidates
from stream.tables.cold import ColdTier
from stream.tables.design import U64, Design
from stream.tables.hot import PACE, HotTier, Pace
from stream.tables.probing import Probing
from stream.tables.rocks import DEFAULT, Batch, Store

U8 = NDArray[np.uint8]

LAYOUT: Final = b"tables/layout"
GENERATION: Final = b"generation/"
MOST_GENERATIONS: Final = 1 << 16
ROWS_AT_ONCE: Final = 1 << 12
"""Rows searched at once: 26 probes in 10 tables of 4096 rows are 4.3 MB of slots."""


@dataclass(slots=True)
class TablesStats:
    """Counters since opening, and sizes as they are."""

    hot_probes: int = 0
    """Buckets looked up in RAM."""
    rocks_probes: int = 0
    """Keys looked up in RocksDB."""
    rocks_hits: int = 0
    """Of these, keys that were there."""
    generations: int = 0
    """Generations frozen into RocksDB."""
    hot_anchors: int = 0
    """Anchors searched in RAM."""
    cold_anchors: int = 0
    """Anchors searched in RocksDB."""
    dead_anchors: int = 0
    hot_slots: int = 0
    """Heads of the hot tier, 4 bytes each."""


class Tables:
    """The index of live anchors, numbered 0, 1, 2, ... in insertion order.

    Opening recovers everything from the store. Raises StateError when the store was made with another
    design or another `generation`.

    `memory` is a third each for the hot tier's rows, its heads, and the cold tier's map; anchors not yet
    frozen are in RAM whatever it says.
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
        self._frozen = sum(1 for _ in with_prefix(store, GENERATION))
        self._freezing: freeze.Freezing | None = None
        self._hot = HotTier(
            design,
            self._skipped,
            self._dead,
            distance=distance,
            memory=memory * 2 // 3,
            slack=generation,
            pace=pace,
        )
        self._cold = ColdTier(
            store,
            design,
            self._log,
            self._skipped,
            self._dead,
            size=generation,
            distance=distance,
            memory=memory // 3,
        )
        cold = self._cold_due(self.count)
        self._hot.load(self._log.read(cold * generation, self.count), cold * generation)
        self._cold.extend(cold, wait=True)

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
            generations=self._frozen,
            hot_anchors=self.count - self._hot.floor,
            cold_anchors=self._cold.anchors,
            dead_anchors=self._dead.count,
            hot_slots=self._hot.slots,
        )

    def search(self, fingerprints: U64, uncertain: U8, words: U64 | None = None) -> Candidates:
        """Live anchors that entered a bucket probed for a row, at most `distance` bits from it.

        `fingerprints` has shape (n,); `uncertain` lists bit indexes, least certain first, shape (n, 32);
        `words` (n,), where None, are the fingerprints.
        """
        words = fingerprints if words is None else words
        starts = range(0, max(1, len(fingerprints)), ROWS_AT_ONCE)
        parts = [
            self._search(words[some], fingerprints[some], uncertain[some])
            for some in (slice(start, start + ROWS_AT_ONCE) for start in starts)
        ]
        if len(parts) == 1:
            return parts[0]
        sizes = [part.bucket_sizes for part in parts if part.bucket_sizes is not None]
        return Candidates(
            np.concatenate([part.row + index * ROWS_AT_ONCE for index, part in enumerate(parts)]),
            np.concatenate([part.anchor for part in parts]),
            np.concatenate([part.distance for part in parts]),
            np.concatenate(sizes) if sizes else None,
            [probing for part in parts for probing in part.probed],
        )

    def _search(self, words: U64, fingerprints: U64, uncertain: U8) -> Candidates:
        counted = self._cap is not None
        probing = Probing(self._design, words, fingerprints, uncertain, self._flip_bits, self._flips, counted)
        self._hot.search(probing)
        self._cold.search(probing)
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

    def alive(self, anchors: I64) -> NDArray[np.bool_]:
        """Which of these anchors may still be candidates."""
        return ~self._dead.test(anchors)

    def maintain(self, *, wait: bool = False) -> None:
        """Freeze generations that are due, in the background; called after each `Store.write`.

        With `wait`, returns when nothing is due any more. Raises what freezing raised.
        """
        while True:
            if self._freezing is not None and (wait or self._freezing.built):
                self._finish(self._freezing)
            due = self.count >= (self._frozen + 1) * self._size
            if due and self._freezing is None:
                self._start()
            if not (wait and self._freezing is not None):
                break
        self._cold.extend(self._cold_due(self.count), wait=wait)
        self._hot.evict(self._cold.generations * self._size)

    def _start(self) -> None:
        if self._frozen >= MOST_GENERATIONS:
            raise StateError(f"state directory {self._store.path}: {self._frozen} generations, no more fit")
        first = self._frozen * self._size
        rows = self._hot.rows(first, first + self._size)
        masks = self._skipped.masks(first, first + self._size)
        self._freezing = freeze.Freezing(self._store, self._design, self._frozen, first, rows, masks)

    def _finish(self, freezing: freeze.Freezing) -> None:
        freezing.finish()
        self._freezing = None
        first = freezing.generation * self._size
        batch = self._store.batch()
        key = GENERATION + freezing.generation.to_bytes(2, "big")
        batch.put(DEFAULT, key, np.array([first, self._size], "<u8").tobytes())
        self._store.write(batch)
        self._frozen += 1

    def _cold_due(self, count: int) -> int:
        """Generations, all frozen, that the hot tier has no memory for."""
        beyond = max(0, count - self._hot.budget)
        return min(self._frozen, -(-beyond // self._size))

    def close(self) -> None:
        """Wait for a freeze under way and drop it; the store stays open."""
        if self._freezing is not None:
            self._freezing.discard()
            self._freezing = None
        freeze.clean(self._store.path)

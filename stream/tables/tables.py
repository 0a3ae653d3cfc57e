"""The index of live anchors: three tiers that are searched as one.

Anchors are indexed by a key of one or more 64-bit words: the fingerprint itself, or the page's minima.
Distances are between fingerprints. Candidates beyond the distance are dropped here, in RAM, before any sketch
is read from RocksDB.

The newest anchors are in hash tables in RAM (`hot`), older ones are packed in RAM (`warm`), and the oldest
are in RocksDB (`cold`). Anchors are frozen in generations of a fixed size, and these are merged,
independently of batches, so that equal anchors make equal state.
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
from stream.tables.arrays import I64, U8, U64
from stream.tables.cold import freeze
from stream.tables.cold.tier import ColdTier
from stream.tables.compaction import Compaction, stored_runs
from stream.tables.design import Design
from stream.tables.hot.tier import HEAD_GROWTH, HeadGrowth, HotTier
from stream.tables.memory_shares import MemoryShares
from stream.tables.search.pair_collector import LAST_ANCHOR
from stream.tables.search.probing import ALL, Nearest, Probing, SearchOptions
from stream.tables.search.rank import ranks_of
from stream.tables.search.result import SearchResult
from stream.tables.store.anchors import StoredAnchors
from stream.tables.store.contents import union
from stream.tables.store.rocks import DEFAULT, Store, Writes
from stream.tables.warm.tier import WarmTier

LAYOUT: Final = b"tables/layout"
MOST_SEARCHED_ROWS: Final = 1 << 12
"""Rows searched at a time. Their entries in the cold tier take some MiB."""
PAIRS_AT_ONCE: Final = 1 << 21
"""Most pairs found at a time, 16 MiB in each of a few arrays. A row of spam may have ten thousand. If the
limit is reached, the search is repeated with fewer rows."""


@dataclass(slots=True)
class TablesStats:
    """Counters since opening, and current sizes."""

    hot_probes: int = 0
    """Buckets probed in the hot tier."""
    rocks_probes: int = 0
    """Groups read from RocksDB."""
    rocks_hits: int = 0
    """Groups found in RocksDB."""
    generations: int = 0
    """Generations frozen into RocksDB."""
    runs: int = 0
    """Runs into which the generations are merged."""
    hot_anchors: int = 0
    """Anchors in the hot tier."""
    warm_anchors: int = 0
    """Anchors in the warm tier."""
    cold_anchors: int = 0
    """Anchors in the cold tier."""
    dead_anchors: int = 0
    skipping_anchors: int = 0
    """Anchors kept out of at least one full bucket."""
    digest: int = 0
    """Digest of the dead and skipping anchors."""
    hot_heads: int = 0
    """Heads of the hot tier, of 5 bytes each."""

    @property
    def ram_anchors(self) -> int:
        """Anchors searched in RAM."""
        return self.hot_anchors + self.warm_anchors


class Tables:
    """The index of live anchors, which are numbered 0, 1, 2, ... in order of insertion.

    Opening recovers everything from the store. Raises StateError if the store was made with another design or
    another `generation`. `memory` is the size in bytes of all three tiers, apart from anchors in the hot tier
    that are not packed yet.
    """

    def __init__(
        self,
        store: Store,
        design: Design,
        options: SearchOptions,
        *,
        memory: int,
        generation: int,
        growth: HeadGrowth = HEAD_GROWTH,
    ) -> None:
        self._store = store
        self._design = design
        self._options = options
        self._size = generation
        freeze.clean(store.path)
        self._check_layout()
        anchors = StoredAnchors(store, design.words)
        self._log, self._dead, self._skipped = anchors.log, anchors.dead, anchors.skipped
        runs = stored_runs(store, generation, self.count)
        self._rows_at_once = MOST_SEARCHED_ROWS
        self._crowded = False  # a hint, which threads may overwrite
        """Whether the last rows had so many candidates that the next ones had better be asked for the nearest
        at once."""
        self._background = ThreadPoolExecutor(1, "tables-background")
        shares = MemoryShares.of(memory)
        self._warm = WarmTier(
            design,
            anchors,
            self._background,
            distance=options.distance,
            memory=shares.packed,
            generation=generation,
        )
        self._hot = HotTier(
            design,
            anchors,
            distance=options.distance,
            memory=shares.heads,
            room=generation + self._warm.largest_step,
            growth=growth,
        )
        self._cold = ColdTier(
            store,
            design,
            anchors,
            self._background,
            distance=options.distance,
            memory=shares.presence,
        )
        self._compaction = Compaction(store, design, generation, runs, anchors, self._hot, self._cold)
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
        """Number of anchors ever inserted, which is the number of the next one."""
        return self._log.count

    @property
    def stats(self) -> TablesStats:
        """Current counters and sizes."""
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
            digest=union(self._dead.digest, self._skipped.digest),
            hot_heads=self._hot.heads,
        )

    def search(self, fingerprints: U64, uncertain: U8, words: U64 | None = None) -> SearchResult:
        """The candidates of rows: live anchors within `distance` bits that share a probed bucket.

        `fingerprints` has the shape (n,). `uncertain` lists bit indexes, least certain first, shape (n, 32).
        `words` (n, W) are by default the fingerprints.
        """
        parts = list(self.searches(fingerprints, uncertain, words))
        if len(parts) == 1:
            return parts[0][1]
        sizes = [part.bucket_sizes for _, part in parts if part.bucket_sizes is not None]
        return SearchResult(
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
    ) -> Iterator[tuple[int, SearchResult]]:
        """The result of `search` in parts that take little memory.

        Yields (first row, candidates), where the rows of candidates are relative to the first row. If there
        are very many candidates, or the last rows had very many, `nearest` is called for a limit on them.
        More than the limit may be returned.
        """
        words, start, wanted = fingerprints if words is None else words, 0, ALL
        if self._crowded and nearest is not None:
            wanted, nearest = nearest(), None
        while start < max(1, len(fingerprints)):
            rows = max(1, min(self._rows_at_once, len(fingerprints) - start))
            some = slice(start, start + rows)
            result = self._search(words[some], fingerprints[some], uncertain[some], wanted.from_row(start))
            many = result is None or len(result.row) > PAIRS_AT_ONCE // 4
            self._crowded = many or (result is not None and _members(result) > PAIRS_AT_ONCE // 4)
            if many and nearest is not None:
                wanted, nearest = nearest(), None
                if result is None:
                    continue
            if result is None:
                self._rows_at_once = max(1, rows // 8)
                continue
            yield start, result
            start += rows
            if rows == self._rows_at_once and len(result.row) < PAIRS_AT_ONCE // 4:
                self._rows_at_once = min(2 * rows, MOST_SEARCHED_ROWS)

    def _search(self, words: U64, fingerprints: U64, uncertain: U8, wanted: Nearest) -> SearchResult | None:
        """Search some rows in all tiers. None if they have too many pairs."""
        most = PAIRS_AT_ONCE if len(words) > 1 else sys.maxsize
        probing = Probing(self._design, words, fingerprints, uncertain, self._options, most, wanted)
        self._hot.search(probing)
        self._warm.search(probing)
        self._cold.search(probing)
        if probing.collector.is_full:
            return None
        row, anchor, distance = probing.collector.pairs()
        if self._dead.count:
            live = ~self._dead.test(anchor)
            row, anchor, distance = row[live], anchor[live], distance[live]
        sizes = None
        if self._options.cap is not None:
            sizes = probing.queries.sizes.astype(np.uint32).reshape(-1, self._design.tables)
        return SearchResult(row, anchor, distance, sizes, [probing])

    def nearest(self, word: np.uint64, most: int, newest: int) -> I64:
        """Return the live anchors with the smallest distance to the first word of a fingerprint, nearest
        first and older ones first among equals: at most `most` of the `newest` anchors.

        This reads the log from the store, one anchor after the other, and needs no bucket.
        """
        anchors, distances = np.zeros(0, np.int64), np.zeros(0, np.int64)
        for first, rows in self._log.slices(max(0, self.count - newest), self.count):
            numbers = np.arange(first, first + len(rows), dtype=np.int64)
            some = self.is_alive(numbers)
            anchors = np.concatenate([anchors, numbers[some]])
            distances = np.concatenate([distances, np.bitwise_count(rows[some, -1] ^ word)])
            best = np.lexsort((anchors, distances))[:most]
            anchors, distances = anchors[best], distances[best]
        return anchors

    def ranks(self, words: U64, row: I64, anchor: I64, distance: U8) -> U8:
        """The ranks (m,) of pairs of a row of `words` (n, W) and an anchor, at these distances (m,). The keys
        of anchors are read from RAM as far as they are there."""
        ranks = np.empty(len(row), np.uint8)
        hot = anchor >= self._hot.floor
        warm = ~hot & (anchor >= self._warm.floor)
        for some, tier in ((hot, self._hot), (warm, self._warm), (~(hot | warm), None)):
            anchors = anchor[some]
            if len(anchors):
                keys = tier.keys(anchors) if tier else None
                others, places = keys or (self._log.take(anchors), np.arange(len(anchors)))
                ranks[some] = ranks_of(distance[some], words, row[some], others, places)
        return ranks

    def insert(
        self, batch: Writes, fingerprints: U64, skipped: dict[int, int], words: U64 | None = None
    ) -> None:
        """Add anchors, one per row of `fingerprints`, numbered from `count`.

        `words` (n, W) are by default the fingerprints. `skipped` maps a row to a bit mask of tables whose
        buckets are full, which the anchor is kept out of (rule 16). The caller writes `batch`; searches find
        the anchors at once.
        """
        if self.count + len(fingerprints) > LAST_ANCHOR:
            raise StateError(f"state directory {self._store.path}: the index is full: {self.count} anchors")
        self._skipped.add(batch, self.count, skipped)
        rows = np.column_stack([fingerprints if words is None else words, fingerprints])
        self._hot.insert(rows)
        self._log.append(batch, rows)

    def kill(self, batch: Writes, anchors: I64) -> None:
        """Mark superseded or expired anchors as dead: no longer candidates, nor counted in buckets."""
        if len(anchors) and (anchors.min() < 0 or anchors.max() >= self.count):
            raise ValueError(f"anchors to kill must be below {self.count}")
        self._dead.kill(batch, anchors)
        self._hot.forget(anchors)

    def is_alive(self, anchors: I64) -> NDArray[np.bool_]:
        """Whether each of these anchors is alive, (n,)."""
        return ~self._dead.test(anchors)

    def maintain(self, *, wait: bool = False) -> None:
        """Freeze generations that are due, in the background; called after each `Store.write`.

        With `wait`, returns when nothing is due any more. Raises what freezing raised.
        """
        self._compaction.advance(wait=wait)
        self._shift(self._evictable(), wait=wait)
        self._hot.evict(self._warm.end)

    def _shift(self, evicted: int, *, wait: bool) -> None:
        """Move anchors below `evicted` from the hot tier to the warm one, and those beyond its budget to the
        cold one."""
        self._cold.extend(max(0, evicted - self._warm.budget), self._size, wait=wait)
        self._warm.drop(self._cold.anchors)
        self._warm.extend(evicted, wait=wait)

    def _evictable(self) -> int:
        """The number up to which the hot tier may evict anchors: those in runs, once there are enough for a
        step of the warm tier."""
        frozen = self._compaction.frozen
        many = frozen - self._warm.end >= self._warm.step
        return frozen if many else self._hot.floor

    def close(self) -> None:
        """Cancel freezing and merging. The store stays open."""
        self._cold.close()
        self._compaction.close()
        self._background.shutdown(cancel_futures=True)
        freeze.clean(self._store.path)


def _members(result: SearchResult) -> int:
    """Live anchors in the rows' exact buckets, as far as they are counted."""
    return 0 if result.bucket_sizes is None else int(result.bucket_sizes.sum())

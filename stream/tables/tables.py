"""The index of live anchors.

Anchors are indexed by a key of one or more 64-bit words: the fingerprint itself, or the page's minima.
Distances are between fingerprints. Candidates beyond the distance are dropped here, in RAM, before any sketch
is read from RocksDB.

All anchors are searched by the tables of a design, in three tiers (`stream.tables.tiers`). Those that met
full pairs of minima are searched by the reserves that they entered instead as well
(`stream.tables.reserves`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.errors import StateError
from stream.tables.arrays import I64, U8, U64
from stream.tables.cold import freeze
from stream.tables.design import Design
from stream.tables.hot.tier import HEAD_GROWTH, HeadGrowth
from stream.tables.reserves.index import GROWTH, ReserveIndex
from stream.tables.reserves.keys import crowded_rows
from stream.tables.search.pair_collector import MOST_ANCHORS, PairCollector
from stream.tables.search.probing import Probing, SearchOptions
from stream.tables.search.rank import ranks_of
from stream.tables.search.result import ProbedReserves, SearchResult, merged
from stream.tables.store.anchors import StoredAnchors, refuse_dropped
from stream.tables.store.contents import union
from stream.tables.store.reclaim import Reclaiming
from stream.tables.store.rocks import DEFAULT, LOG, Store, Writes
from stream.tables.tiers import Tiers, TierSizes

LAYOUT: Final = b"tables/layout"
RESERVES_SHARE: Final = 1 / 8
"""Share of `memory` that reserves have, where there may be any."""
MOST_SEARCHED_ROWS: Final = 1 << 12
"""Rows searched at a time. Their entries in the cold tier take some MiB."""
PAIRS_AT_ONCE: Final = 1 << 21
"""Most pairs found at a time, 16 MiB in each of a few arrays. A row has 496
by default, and in strict mode as many as there are. If the limit is reached, the search is repeated with
fewer rows."""


class IndexKind(NamedTuple):
    """What is indexed."""

    reserves: bool = False
    """Whether the tables are of first pairs of minima, and anchors may be in reserves."""
    windowed: bool = False
    """Whether the first anchors go one day (`Tables.raise_first`), so that runs must stay small."""


_PLAIN: Final = IndexKind()


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
    reserve_entries: int = 0
    """Entries of anchors in reserves."""

    @property
    def ram_anchors(self) -> int:
        """Anchors searched in RAM."""
        return self.hot_anchors + self.warm_anchors


REMOVED_AT_ONCE: Final = 64
"""What is gone is removed from a log once it is this part of what is left. Each time costs a flush, and some
files are written anew."""


class Tables:
    """The index of live anchors, which are numbered in order of insertion, from `first` on.

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
        kind: IndexKind = _PLAIN,
    ) -> None:
        self._store = store
        self._design = design
        self._options = options
        self._size = generation
        freeze.clean(store.path)
        self._check_layout()
        self._rows_at_once = MOST_SEARCHED_ROWS
        refuse_dropped(store.path, lambda key: store.get(DEFAULT, [key])[0])
        anchors = StoredAnchors(store, design.words)
        self._log, self._dead, self._skipped = anchors.log, anchors.dead, anchors.skipped
        of_reserves = int(memory * RESERVES_SHARE) if kind.reserves else 0
        sizes = TierSizes(memory - of_reserves, generation, growth, kind.windowed)
        self._reclaiming = Reclaiming(store)
        self._tiers = Tiers(store, design, anchors, options.distance, sizes)
        self._reserves = None
        if kind.reserves:
            try:
                sizes = TierSizes(of_reserves, generation, GROWTH, kind.windowed)
                self._reserves = ReserveIndex(store, design, anchors, options, sizes)
            except BaseException:
                self.close()
                raise

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
    def first(self) -> int:
        """Number of the first anchor; those before it are gone."""
        return self._log.first

    @property
    def start(self) -> bytes:
        """The key of the rows in the log that have the first anchor."""
        return self._log.start

    @property
    def count(self) -> int:
        """Number of anchors ever inserted, which is the number of the next one."""
        return self._log.count

    @property
    def anchors(self) -> int:
        """Number of anchors from the first one on, dead ones included."""
        return self.count - self.first

    @property
    def stats(self) -> TablesStats:
        """Current counters and sizes."""
        hot, warm, cold = self._tiers.hot, self._tiers.warm, self._tiers.cold
        every = [self._tiers] if self._reserves is None else [self._tiers, self._reserves.tiers]
        return TablesStats(
            hot_probes=sum(tiers.hot.probes for tiers in every),
            rocks_probes=sum(tiers.cold.probes for tiers in every),
            rocks_hits=sum(tiers.cold.hits for tiers in every),
            generations=-(-(self._tiers.compaction.frozen - self.first) // self._size),
            runs=self._tiers.compaction.runs,
            hot_anchors=self.count - hot.floor,
            warm_anchors=warm.end - warm.floor,
            cold_anchors=cold.end - self.first,
            dead_anchors=self._dead.count,
            skipping_anchors=self._skipped.count,
            digest=union(self._dead.digest, self._skipped.digest),
            hot_heads=hot.heads,
            reserve_entries=self._reserves.entries if self._reserves else 0,
        )

    def search(self, fingerprints: U64, words: U64 | None = None) -> SearchResult:
        """The candidates of rows: live anchors within `distance` bits that share a bucket into which the row
        looks (rule 16).

        `fingerprints` has the shape (n,). `words` (n, W) are by default the fingerprints; of minima all
        words.
        """
        return SearchResult.joined(list(self.searches(fingerprints, words)))

    def searches(
        self,
        fingerprints: U64,
        words: U64 | None = None,
        entering: I64 | None = None,
    ) -> Iterator[tuple[int, SearchResult]]:
        """The result of `search` in parts that take little memory.

        Yields (first row, candidates), where the rows of candidates are relative to the first row. `entering`
        (n, tables) says how many rows of a batch may enter each row's bucket, that row included: if it may be
        full then, the row's reserves are searched as well.
        """
        words, start = fingerprints if words is None else words, 0
        words = words if words.ndim == 2 else words[:, None]
        while start < max(1, len(fingerprints)):
            rows = max(1, min(self._rows_at_once, len(fingerprints) - start))
            some = slice(start, start + rows)
            result = self._search(
                words[some], fingerprints[some], None if entering is None else entering[some]
            )
            if result is None:
                self._rows_at_once = max(1, rows // 8)
                continue
            yield start, result
            start += rows
            if rows == self._rows_at_once and len(result.row) < PAIRS_AT_ONCE // 4:
                self._rows_at_once = min(2 * rows, MOST_SEARCHED_ROWS)

    def _search(self, words: U64, fingerprints: U64, entering: I64 | None) -> SearchResult | None:
        """Search some rows in all tiers. None if they have too many pairs."""
        most = PAIRS_AT_ONCE if len(words) > 1 else sys.maxsize
        collector = PairCollector(most, self._dead.base)
        probing = Probing(self._design, words, fingerprints, self._options, collector)
        self._tiers.search(probing)
        if collector.is_full:
            return None
        row, anchor, distance = collector.pairs()
        reserve = np.zeros(len(row), np.bool_)
        sizes, reserves, cap = None, ProbedReserves.none(len(words)), self._options.cap
        if cap is not None:
            sizes = probing.queries.sizes.reshape(-1, self._design.tables)
        if self._reserves is not None and sizes is not None and cap is not None:
            further = self._reserves.looking_further(probing.queries.keys)
            looked = further if entering is None else further | crowded_rows(sizes, entering, cap)
            rows = np.flatnonzero(looked)
            reserves = ProbedReserves(further, rows, reserves.sizes)
            if len(rows):
                result = self._reserves.search(probing, rows, collector.room)
                if result is None:
                    return None
                pairs, of_reserves = result
                reserves = ProbedReserves(further, rows, of_reserves)
                row, anchor, distance, reserve = merged((row, anchor, distance), pairs, self._dead.base)
        if self._dead.count or self.first > self._dead.base:
            live = ~self._dead.test(anchor)
            row, anchor, distance, reserve = row[live], anchor[live], distance[live], reserve[live]
        return SearchResult(row, anchor, distance, reserve, sizes, reserves, [probing])

    def nearest(self, word: np.uint64, most: int, newest: int) -> I64:
        """Return the live anchors with the smallest distance to the first word of a fingerprint, nearest
        first and older ones first among equals: at most `most` of the `newest` anchors.

        This reads the log from the store, one anchor after the other, and needs no bucket.
        """
        anchors, distances = np.zeros(0, np.int64), np.zeros(0, np.int64)
        for first, rows in self._log.slices(max(self.first, self.count - newest), self.count):
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
        hot = anchor >= self._tiers.hot.floor
        warm = ~hot & (anchor >= self._tiers.warm.floor)
        for some, tier in ((hot, self._tiers.hot), (warm, self._tiers.warm), (~(hot | warm), None)):
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

        `words` (n, W) are by default the fingerprints; of minima all words. `skipped` maps a row to a bit
        mask of the tables whose full buckets the anchor is kept out of, and above these of the reserves that
        it enters (rule 16). The caller writes `batch`; searches find the anchors at once.
        """
        if (held := self.count - self.first) + len(fingerprints) > MOST_ANCHORS:
            raise StateError(f"state directory {self._store.path}: the index is full: {held} anchors")
        if self.count - self._dead.base + len(fingerprints) > MOST_ANCHORS:
            self._dead.rebase()
        if self._reserves is not None:
            entries = self._reserves.entries
            if entries + self._reserves.entries_of(skipped) > MOST_ANCHORS:
                raise StateError(
                    f"state directory {self._store.path}: the index is full: {entries} entries in reserves"
                )
        words = fingerprints if words is None else words
        words = words if words.ndim == 2 else words[:, None]
        further = words[:, self._design.words :]
        self._skipped.add(batch, self.count, skipped, further)
        rows = np.column_stack([words[:, : self._design.words], fingerprints])
        self._tiers.insert(rows)
        if self._reserves is not None:
            self._reserves.insert(self.count, rows, further, skipped)
        self._log.append(batch, rows)

    def kill(self, batch: Writes, anchors: I64) -> None:
        """Mark superseded or expired anchors as dead: no longer candidates, nor counted in buckets."""
        if len(anchors) and (anchors.min() < self.first or anchors.max() >= self.count):
            raise ValueError(f"anchors to kill must be from {self.first} on and below {self.count}")
        self._dead.kill(batch, anchors)
        self._tiers.forget(anchors)
        if self._reserves is not None:
            self._reserves.kill(anchors)

    def raise_first(self, batch: Writes, first: int) -> None:
        """Let the anchors begin at `first`: those before it are gone at once, as if dead. The caller writes
        `batch`. What they take is removed by `maintain`."""
        if not self.first <= first <= self.count:
            raise ValueError(f"the first anchor must be from {self.first} on, and not after {self.count}")
        if first == self.first:
            return
        if self._reserves is not None:
            self._reserves.raise_first(batch, first)
        self._log.raise_first(batch, first)
        self._dead.drop(batch, first)
        self._skipped.drop(batch, first)

    def is_alive(self, anchors: I64) -> NDArray[np.bool_]:
        """Whether each of these anchors is alive, (n,)."""
        return ~self._dead.test(anchors)

    def maintain(self, *, wait: bool = False) -> None:
        """Freeze generations that are due, and remove what is gone, in the background; called after each
        `Store.write`.

        With `wait`, returns when nothing is due any more. Raises what freezing raised.
        """
        self._tiers.maintain(wait=wait)
        unread = self._tiers.reads_from
        if self._reserves is not None:
            self._reserves.maintain(wait=wait)
            unread = min(unread, self._reserves.reads_from)
        self._remove_rows(min(unread, self.first))
        self._reclaiming.check(wait=wait)

    def _remove_rows(self, end: int) -> None:
        """Remove the rows of the anchors before `end` from the log, if they are many."""
        if REMOVED_AT_ONCE * (end - self._log.removed) < max(self.anchors, 1):
            return
        bounds = self._log.take_removable(end)
        if bounds[0] < bounds[1]:
            self._reclaiming.remove(LOG, bounds, "drop.pages")

    def close(self) -> None:
        """Cancel freezing and merging. The store stays open."""
        self._tiers.close()
        if self._reserves is not None:
            self._reserves.close()
        self._reclaiming.close()
        freeze.clean(self._store.path)

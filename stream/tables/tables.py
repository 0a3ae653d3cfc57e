"""The index of live anchors.

Anchors are indexed by a key of one or more 64-bit words: the fingerprint itself, or the page's minima.
Distances are between fingerprints. Candidates beyond the distance are dropped here, in RAM, before any sketch
is read from RocksDB.

Anchors are in the tables of a design; those that met full pairs of minima are in reserves as well
(`stream.tables.reserves`), which are one table more. The newest anchors are searched in RAM
(`stream.tables.hot`), older ones in RocksDB (`stream.tables.runs`). Anchors are frozen in generations of a
fixed size, and these are merged, independently of batches.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.errors import SettingsError, StateError
from stream.fingerprint.minima import MINIMA_WORDS
from stream.tables.arrays import I64, U8, U64
from stream.tables.design import Design
from stream.tables.hot.tier import MOST_ROWS, NO_TABLE, HotTier, bytes_of
from stream.tables.reserves.keys import PAIRS, PREFIX_BITS, crowded_rows, keys_of_reserves
from stream.tables.reserves.stayed_out import looking_further, nobody, with_anchors
from stream.tables.runs import building
from stream.tables.runs.build import GenerationContent
from stream.tables.runs.run import Run
from stream.tables.runs.tier import Runs
from stream.tables.search.pair_collector import MOST_ANCHORS, PairCollector
from stream.tables.search.prefixes_compiled import keys_of
from stream.tables.search.probing import Probing, SearchOptions
from stream.tables.search.rank import ranks_of
from stream.tables.search.result import ProbedReserves, SearchResult, merged
from stream.tables.store.anchors import Skips, StoredAnchors
from stream.tables.store.contents import union
from stream.tables.store.reclaim import Reclaiming
from stream.tables.store.rocks import DEFAULT, LOG, Store, Writes

LAYOUT: Final = b"tables/layout"
LEAST_FILTERS: Final = 64 << 20
"""Bytes allowed for the filters of all runs together, even if `memory` allows less."""
HOT_GENERATIONS: Final = 2
"""Generations in RAM: one that fills, and one that is being frozen."""
READ_AT_ONCE: Final = 1 << 16
"""Anchors that are read from the log at a time when opening, some MiB."""
MOST_SEARCHED_ROWS: Final = 1 << 12
"""Rows searched at a time. The entries that they read from runs take some MiB."""
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
_NONE: Final = np.zeros(0, np.int64)


@dataclass(slots=True)
class TablesStats:
    """Counters since opening, and current sizes."""

    hot_probes: int = 0
    """Buckets probed in RAM."""
    rocks_probes: int = 0
    """Groups read from RocksDB."""
    rocks_hits: int = 0
    """Groups found in RocksDB."""
    generations: int = 0
    """Generations frozen into RocksDB."""
    runs: int = 0
    """Runs into which the generations are merged."""
    hot_anchors: int = 0
    """Anchors in RAM."""
    cold_anchors: int = 0
    """Anchors in runs."""
    dead_anchors: int = 0
    skipping_anchors: int = 0
    """Anchors kept out of at least one full bucket."""
    digest: int = 0
    """Digest of the dead and skipping anchors."""


REMOVED_AT_ONCE: Final = 64
"""What is gone is removed from a log once it is this part of what is left. Each time costs a flush, and some
files are written anew."""


def memory_of_filters(design: Design, memory: int, generation: int) -> int:
    """The bytes of `memory` that the filters of runs may take: what is left beside the generations in RAM."""
    return max(memory - HOT_GENERATIONS * bytes_of(design, generation), LEAST_FILTERS)


class Tables:
    """The index of live anchors, which are numbered in order of insertion, from `first` on.

    Opening recovers everything from the store. Raises StateError if the store was made with another design or
    another `generation`. `memory` is the size in bytes of the generations in RAM and of the filters of runs.
    """

    def __init__(
        self,
        store: Store,
        design: Design,
        options: SearchOptions,
        *,
        memory: int,
        generation: int,
        kind: IndexKind = _PLAIN,
    ) -> None:
        if generation > MOST_ROWS:
            raise SettingsError(f"tables_generation: {generation} is more than {MOST_ROWS}")
        self._store = store
        self._design = design
        self._options = options
        self._size = generation
        self._has_reserves = kind.reserves
        building.clean(store.path)
        self._check_layout()
        self._rows_at_once = MOST_SEARCHED_ROWS
        anchors = StoredAnchors(store, design.words)
        self._log, self._dead, self._skipped = anchors.log, anchors.dead, anchors.skipped
        self._stayed_out = nobody()
        self._reclaiming = Reclaiming(store)
        self._hot = HotTier(design, generation)
        self._runs = Runs(
            store,
            np.append(design.prefix_bits, [PREFIX_BITS] * kind.reserves),
            generation,
            memory=memory_of_filters(design, memory, generation),
            windowed=kind.windowed,
            anchors=(self._dead, self.count),
            content_of=self._content_of,
        )
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    def _load(self) -> None:
        """Insert the anchors that are in no run, and note who stayed out of full buckets."""
        start = max(self._runs.end, self.first)
        numbers, masks = self._skipped.entries(self.first, start)
        for some in range(0, len(numbers), READ_AT_ONCE):
            part = slice(some, some + READ_AT_ONCE)
            self._note(self._log.take(numbers[part]), masks[part], numbers[part])
        for first, rows in self._log.slices(start, self.count, READ_AT_ONCE):
            numbers, masks = self._skipped.entries(first, first + len(rows))
            words = rows[:, :-1]
            if self._has_reserves:
                words = np.zeros((len(rows), MINIMA_WORDS), np.uint64)
                words[:, : self._design.words] = rows[:, :-1]
                words[numbers - first, self._design.words :] = self._skipped.further(numbers)
            self._enter(first, rows, words, Skips(numbers, masks))

    def _enter(self, first: int, rows: U64, words: U64, skips: Skips) -> None:
        """Insert anchors, from the number `first` on, but for dead ones, into tables and reserves."""
        masks = skips.masks_of(first, first + len(rows))
        reserves = masks >> np.uint64(PAIRS) if self._has_reserves else np.zeros(len(rows), np.uint64)
        dead = self._dead.test(np.arange(first, first + len(rows)))
        self._hot.insert(first, rows, words, masks, reserves, dead)
        self._note(rows[skips.numbers - first], skips.masks, skips.numbers)

    def _note(self, rows: U64, masks: U64, numbers: I64) -> None:
        """Note that anchors stayed out of buckets, by rows (n, W + 1) and masks (n,)."""
        if self._has_reserves and len(numbers):
            keys = keys_of(rows, self._design.pieces)
            self._stayed_out = with_anchors(self._stayed_out, keys, masks, numbers, self.first)

    def _content_of(self, run: Run) -> GenerationContent:
        """What a full generation in RAM has."""
        held, start = self._hot.generation(run.number), max(run.first, self.first)
        skips = self._skipped.entries(start, run.end)
        rows, keys = held.reserves
        gone, dead = start - run.first, self._dead.test(np.arange(run.first, run.end))
        left = ~dead[rows]
        return GenerationContent(
            run,
            self._design,
            self._runs.prefix_bits,
            held.rows[gone:],
            np.where(dead[gone:], NO_TABLE, skips.masks_of(start, run.end)),
            (rows[left] - np.uint64(gone), keys[left]),
        )

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
        in_runs = max(0, self._runs.end - self.first)
        return TablesStats(
            hot_probes=self._hot.probes,
            rocks_probes=self._runs.probes,
            rocks_hits=self._runs.hits,
            generations=-(-in_runs // self._size),
            runs=len(self._runs),
            hot_anchors=self.anchors - in_runs,
            cold_anchors=in_runs,
            dead_anchors=self._dead.count,
            skipping_anchors=self._skipped.count,
            digest=union(self._dead.digest, self._skipped.digest),
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
        """Search some rows in both tiers. None if they have too many pairs."""
        most = PAIRS_AT_ONCE if len(words) > 1 else sys.maxsize
        collector, every = PairCollector(most, self._dead.base), np.arange(len(words))
        keys = keys_of(words, self._design.pieces)
        sizes = self._probe(keys, every, fingerprints, collector)
        row, anchor, distance = collector.pairs()
        reserve = np.zeros(len(row), np.bool_)
        reserves, cap = ProbedReserves.none(len(words)), self._options.cap
        if self._has_reserves and cap is not None and not collector.is_full:
            further = looking_further(self._stayed_out, keys, self.first)
            rows = np.flatnonzero(
                further if entering is None else further | crowded_rows(sizes, entering, cap)
            )
            reserves = ProbedReserves(further, rows, reserves.sizes)
            if len(rows):
                of_reserves = self._probe(keys_of_reserves(words[rows]), rows, fingerprints[rows], collector)
                reserves = ProbedReserves(further, rows, of_reserves)
                pairs = (row, anchor, distance), collector.packed()
                row, anchor, distance, reserve = merged(*pairs, self._dead.base)
        if collector.is_full:
            return None
        if self._dead.count or self.first > self._dead.base:
            live = ~self._dead.test(anchor)
            row, anchor, distance, reserve = row[live], anchor[live], distance[live], reserve[live]
        return SearchResult(row, anchor, distance, reserve, None if cap is None else sizes, reserves)

    def _probe(self, keys: U64, rows: I64, fingerprints: U64, collector: PairCollector) -> I64:
        """Add the pairs of queries (n,) in the buckets with these keys (n, T) to `collector`. Returns the
        number of live anchors in each bucket (n, T), if they are counted."""
        probing = Probing(keys, rows, fingerprints, self._options, self._dead.bits, collector)
        self._hot.search(probing, self.first)
        self._runs.search(probing)
        return probing.sizes

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
        elsewhere = np.ones(len(row), np.bool_)
        for rows, places, some in self._hot.rows_of(anchor):
            ranks[some] = ranks_of(distance[some], words, row[some], rows, places)
            elsewhere[some] = False
        if elsewhere.any():
            others = self._log.take(anchor[elsewhere])
            pairs = distance[elsewhere], words, row[elsewhere], others, np.arange(len(others))
            ranks[elsewhere] = ranks_of(*pairs)
        return ranks

    def insert(
        self,
        batch: Writes,
        fingerprints: U64,
        skipped: dict[int, int],
        words: U64 | None = None,
        superseded: I64 = _NONE,
    ) -> None:
        """Add anchors, one per row of `fingerprints`, numbered from `count`.

        `words` (n, W) are by default the fingerprints; of minima all words. `skipped` maps a row to a bit
        mask of the tables whose full buckets the anchor is kept out of, and above these of the reserves that
        it enters (rule 16). `superseded` are anchors that die at the same time, of these or of earlier ones:
        a URL whose page changes at every fetch has thousands in one bucket, which do not even enter it. The
        caller writes `batch`; searches find the anchors at once.
        """
        if (held := self.count - self.first) + len(fingerprints) > MOST_ANCHORS:
            raise StateError(f"state directory {self._store.path}: the index is full: {held} anchors")
        if self.count - self._dead.base + len(fingerprints) > MOST_ANCHORS:
            self._dead.rebase()
        words = fingerprints if words is None else words
        words = words if words.ndim == 2 else words[:, None]
        self._skipped.add(batch, self.count, skipped, words[:, self._design.words :])
        rows = np.column_stack([words[:, : self._design.words], fingerprints])
        first = self.count
        self._log.append(batch, rows)
        self.kill(batch, superseded)
        self._enter(first, rows, words, self._skipped.entries(first, self.count))

    def kill(self, batch: Writes, anchors: I64) -> None:
        """Mark superseded or expired anchors as dead: no longer candidates, nor counted in buckets."""
        if len(anchors) and (anchors.min() < self.first or anchors.max() >= self.count):
            raise ValueError(f"anchors to kill must be from {self.first} on and below {self.count}")
        self._dead.kill(batch, anchors)
        self._hot.remove(anchors)

    def raise_first(self, batch: Writes, first: int) -> None:
        """Let the anchors begin at `first`: those before it are gone at once, as if dead. The caller writes
        `batch`. What they take is removed by `maintain`."""
        if not self.first <= first <= self.count:
            raise ValueError(f"the first anchor must be from {self.first} on, and not after {self.count}")
        if first == self.first:
            return
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
        try:
            self._runs.advance(self.first, self.count, wait=wait)
        finally:
            self._hot.drop(self._runs.end)
        self._remove_rows(self.first)
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
        self._runs.close()
        self._reclaiming.close()
        building.clean(self._store.path)

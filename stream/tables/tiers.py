"""An index of anchors by one table design: three tiers that are searched as one.

The newest anchors are in hash tables in RAM (`hot`), older ones are packed in RAM (`warm`), and the oldest
are in RocksDB (`cold`). Anchors are frozen in generations of a fixed size, and these are merged,
independently of batches, so that equal anchors make equal state.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from stream.tables.arrays import I64, U64
from stream.tables.cold.tier import MOST_BITS, ColdTier
from stream.tables.compaction import Compaction, stored_runs
from stream.tables.design import Design
from stream.tables.hot.tier import HEAD_GROWTH, HeadGrowth, HotTier
from stream.tables.memory_shares import MemoryShares
from stream.tables.search.probing import Probing
from stream.tables.store.anchors import IndexedAnchors
from stream.tables.store.rocks import Store
from stream.tables.warm.tier import WarmTier, anchors_in

FEW_BITS: Final = 12
"""Bits an anchor and table of presence filters, below which they get a larger share of memory."""


class TierSizes(NamedTuple):
    """Room for the tiers of an index."""

    memory: int
    """Bytes of all three, apart from anchors in the hot tier that are not packed yet."""
    generation: int
    """Anchors that are frozen at a time."""
    growth: HeadGrowth = HEAD_GROWTH
    windowed: bool = False
    """Whether the first anchors go one day."""


class Tiers:
    """The tiers that search the anchors of a store.

    Opening recovers everything from the store. Raises StateError.
    """

    def __init__(
        self, store: Store, design: Design, anchors: IndexedAnchors, distance: int, sizes: TierSizes
    ) -> None:
        self._log = anchors.log
        self._generation = sizes.generation
        runs = stored_runs(store, design, self._log.first, self._log.count)
        self._background = ThreadPoolExecutor(1, "tables-background")
        self._design, self._memory = design, sizes.memory
        shares = self._shares(MOST_BITS)
        self._due_shares: MemoryShares | None = None
        """Shares to change to, once the warm tier is empty."""
        self.warm: Final = WarmTier(
            design,
            anchors,
            self._background,
            distance=distance,
            memory=shares.packed,
            generation=sizes.generation,
        )
        self.hot: Final = HotTier(
            design,
            anchors,
            distance=distance,
            memory=shares.heads,
            room=sizes.generation + self.warm.largest_step,
            growth=sizes.growth,
        )
        self.cold: Final = ColdTier(
            store, design, anchors, self._background, distance=distance, memory=shares.presence
        )
        self.compaction: Final = Compaction(
            store, design, sizes.generation, runs, anchors, self.cold, windowed=sizes.windowed
        )
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    def _load(self) -> None:
        evicted = self._evictable()
        with ThreadPoolExecutor(1) as beside:
            loaded = beside.submit(self.hot.load, evicted, self._log.count, self._rows(evicted))
            self._shift(evicted, wait=True)
            loaded.result()
        self.compaction.recover()

    def _rows(self, start: int) -> Iterator[U64]:
        return (rows for _, rows in self._log.slices(start, self._log.count))

    def insert(self, rows: U64) -> None:
        """Add anchors by their rows (n, W + 1), which are in the log, too. Searches find them at once."""
        self.hot.insert(rows)

    def forget(self, anchors: I64) -> None:
        """Remove these dead anchors from chains, so that searches no longer visit them."""
        self.hot.forget(anchors)

    def search(self, probing: Probing) -> None:
        """Add pairs and bucket sizes to `probing`. Pairs may have dead anchors."""
        self.hot.search(probing)
        self.warm.search(probing)
        self.cold.search(probing)

    def maintain(self, *, wait: bool) -> None:
        """Freeze generations that are due, in the background, and give up anchors that are gone.

        With `wait`, returns when nothing is due any more. Raises what freezing raised.
        """
        first = self._log.first
        self.cold.skip(first)
        self.warm.drop(first)
        self.compaction.advance(wait=wait)
        self._shift(self._evictable(), wait=wait)
        self.hot.evict(self.warm.end)

    @property
    def reads_from(self) -> int:
        """Anchors below this number are not read any more in the background."""
        return min(self.compaction.reads_from, self.cold.reads_from, self.warm.reads_from)

    def _shift(self, evicted: int, *, wait: bool) -> None:
        """Move anchors below `evicted` from the hot tier to the warm one, and those beyond its budget to the
        cold one."""
        if self._due_shares is None:
            self.cold.extend(evicted - self.warm.budget, self._generation, wait=wait)
            self.warm.drop(self.cold.end)
            self.warm.extend(evicted, wait=wait)
            if self._shares(FEW_BITS).presence > self.cold.memory:
                self._due_shares = self._shares(MOST_BITS)
                self.cold.memory = self._due_shares.presence
            else:
                self.cold.enlarge(wait=wait)
        else:  # pack no more, and empty the warm tier
            self.cold.extend(evicted, self._generation, wait=wait)
            self.warm.drop(self.cold.end)
            self.warm.extend(self.warm.end, wait=wait)
            if self.warm.is_idle and self.warm.floor == self.warm.end:
                self.warm.shrink(self._due_shares.packed)
                self._due_shares = None

    def _shares(self, bits: int) -> MemoryShares:
        """The shares that suffice for presence filters of the anchors beyond the warm tier, with so many bits
        an anchor and table."""
        anchors, generation = self._log.count - self._log.first, self._generation
        return MemoryShares.for_filters(
            self._memory,
            anchors,
            bits * self._design.tables,
            lambda memory: anchors_in(self._design, memory, generation),
        )

    def _evictable(self) -> int:
        """The number up to which the hot tier may evict anchors: those in runs, once there are enough for a
        step of the warm tier."""
        frozen = self.compaction.frozen
        many = frozen - self.warm.end >= self.warm.step
        return frozen if many else self.hot.floor

    def close(self) -> None:
        """Cancel freezing and merging. The store stays open."""
        self.cold.close()
        self.compaction.close()
        self._background.shutdown(cancel_futures=True)

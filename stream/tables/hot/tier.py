"""The hot tier: the newest anchors, in RAM, as chained hash tables in flat NumPy arrays.

An anchor below `floor` ends a chain, so evicting the oldest anchors needs no rebuild. Rows form a ring
buffer. When anchors outgrow the heads, a larger set of heads is filled incrementally with every insert, while
the old set is still searched, so no insert waits for a rebuild.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np

from stream.tables.arrays import I64, U64
from stream.tables.design import Design
from stream.tables.hot.chain_search import follow
from stream.tables.hot.chains import Ring
from stream.tables.hot.heads import HEAD_BYTES, Heads
from stream.tables.search.pair_collector import MOST_ANCHORS
from stream.tables.search.probing import Probing
from stream.tables.store.anchors import IndexedAnchors

LOAD: Final = 1
"""Least heads per anchor and table; with fewer, heads grow."""
LOADING_THREADS: Final = 2
"""Threads that link anchors at start, each in some of the tables."""
LOADED_AT_ONCE: Final = 1 << 15
"""Anchors linked at a time at start, in arrays of some MiB."""
SWEPT_AT_ONCE: Final = 1 << 24
"""Heads swept per insert, which takes some milliseconds."""
_ALL_TABLES: Final = slice(None)


@dataclass(frozen=True, slots=True)
class HeadGrowth:
    """How fast heads grow: bounds the time of one insert."""

    first_heads: int = 1 << 22
    """Upper bound of the initial number of heads, which take 13 MB."""
    linked: int = 1 << 11
    """Least number of anchors that one insert links in the coming heads; takes about 1 ms."""
    linked_an_anchor: int = 3
    """Least number of anchors linked in the coming heads per inserted anchor, so that these catch up."""


HEAD_GROWTH: Final = HeadGrowth()


class HotTier:
    """Searches the anchors [floor, count). There is initially room for `room` of them. Heads take at most
    `memory` bytes.

    While heads grow, the coming heads and their links take memory as well: temporarily up to twice as much.
    """

    def __init__(
        self,
        design: Design,
        anchors: IndexedAnchors,
        *,
        distance: int,
        memory: int,
        room: int,
        growth: HeadGrowth = HEAD_GROWTH,
    ) -> None:
        self._design = design
        self._skipped, self._dead = anchors.skipped, anchors.dead
        self._distance = distance
        self._growth = growth
        longest = int(design.prefix_bits.max())
        first = max(1, (growth.first_heads // design.tables).bit_length() - 1)
        most = max(1, (memory // HEAD_BYTES // design.tables).bit_length() - 1)
        self._most_bits = min(max(first, most), longest)
        self.floor = self.count = anchors.log.first
        self._base = self.floor  # numbers in chains are relative to it, and so have 32 bits
        self._origin = self.floor  # number of the anchor in row 0: origin <= floor < origin + rows
        # The system allocates pages when they are first touched, which anchors do in order.
        self._rows = np.empty((room, design.words + 1), np.uint64)
        self.probes = 0
        self._swept = sys.maxsize  # heads below it are swept since the last eviction
        self._heads = self._make_heads(first)
        self._heads.clean()
        self._coming: Heads | None = None
        self._cleaning: threading.Thread | None = None
        self._caught_up = 0  # anchors [floor, caught_up) are linked in the coming heads

    @property
    def heads(self) -> int:
        """Number of heads in all tables."""
        return self._heads.chains.newest.size

    def _make_heads(self, bits: int) -> Heads:
        return Heads(self._design, bits, len(self._rows))

    def load(self, first: int, end: int, rows: Iterable[U64]) -> None:
        """Load the anchors [first, end), whose rows are given in slices. The tier must be empty."""
        self.floor = self.count = self._origin = self._base = first
        self._make_room(end - first)
        self.count = end
        with ThreadPoolExecutor(LOADING_THREADS) as pool:
            bits, cleaned = self._bits_due(), None
            if bits != self._heads.bits:
                self._heads = self._make_heads(bits)
                cleaned = pool.submit(self._heads.clean)
            row = 0
            for some in rows:
                self._rows[row : row + len(some)] = some
                row += len(some)
            if cleaned is not None:
                cleaned.result()
            # Tables with fewer than 8 slots share a byte of presence bits, so one thread does them all.
            shares = LOADING_THREADS if self._heads.slots.bits >= 3 else 1
            edges = [self._design.tables * share // shares for share in range(shares + 1)]
            list(pool.map(self._load_tables, map(slice, edges, edges[1:])))

    def _load_tables(self, tables: slice) -> None:
        for start in range(self.floor, self.count, LOADED_AT_ONCE):
            self._link(self._heads, start, min(start + LOADED_AT_ONCE, self.count), tables)

    @property
    def _ring(self) -> Ring:
        base = self._base
        floor = max(self.floor, self._dead.first)
        return Ring(self._rows, floor - base, self._origin - base, base - self._dead.base - 1)

    def keys(self, anchors: I64) -> tuple[U64, I64]:
        """The rows of all anchors here, and the places in these (n,) of some, which are all in [floor,
        count)."""
        return self._rows, (anchors - self._origin) % len(self._rows)

    def insert(self, rows: U64) -> None:
        """Add anchors by their rows, numbered from `count`. Their skipped tables must already be in
        `skipped`."""
        self._make_room(len(rows))
        if self.count + len(rows) - self._base > MOST_ANCHORS:
            self._rebase()
        start, self.count = self.count, self.count + len(rows)
        for first, row, n in self._runs(start, self.count):
            self._rows[row : row + n] = rows[first - start : first - start + n]
        self._link(self._heads, start, self.count)
        self._sweep()
        self._grow(len(rows))

    def forget(self, anchors: I64) -> None:
        """Remove these dead anchors from their chains, so that searches no longer visit them."""
        here = anchors[anchors >= self.floor]
        if not len(here):
            return
        rows, places = self.keys(here)
        words = rows[places, :-1]
        self._heads.unlink(words, self._ring, self._dead.bits)
        if self._coming is not None and self._cleaning is None:
            self._coming.unlink(words, self._ring, self._dead.bits)

    def evict(self, floor: int) -> None:
        """Evict the anchors below `floor`."""
        if floor > self.floor:
            self.floor = floor
            self._caught_up = max(self._caught_up, floor)
            size = len(self._rows)
            self._origin += (floor - self._origin) // size * size
            self._swept = 0

    def _rebase(self) -> None:
        """Let the numbers in chains be relative to the first anchor here."""
        by = np.uint32(self.floor - self._base)
        for heads in (self._heads, self._coming):
            if heads is not None:
                if self._cleaning is not None:
                    self._cleaning.join()
                heads.rebase(by)
        self._base = self.floor

    def _runs(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """The anchors [start, end) as contiguous rows of the ring: (first number, first row, length)."""
        size = len(self._rows)
        while start < end:
            row = (start - self._origin) % size
            n = min(end - start, size - row)
            yield start, row, n
            start += n

    def _make_room(self, more: int) -> None:
        held = self.count - self.floor
        if held + more <= len(self._rows):
            return
        size = max(held + more, 2 * len(self._rows))
        runs = list(self._runs(self.floor, self.count))
        rows = np.empty((size, self._rows.shape[1]), np.uint64)
        for first, row, n in runs:
            at = first - self.floor
            rows[at : at + n] = self._rows[row : row + n]
        for heads in (self._heads, self._coming):
            if heads is not None:
                links = np.empty((size, self._design.tables), np.uint32)
                for first, row, n in runs:
                    at = first - self.floor
                    links[at : at + n] = heads.chains.links[row : row + n]
                heads.chains = heads.chains._replace(links=links)
        self._rows = rows
        self._origin = self.floor

    def _bits_due(self) -> int:
        bits = self._heads.bits
        while bits < self._most_bits and (1 << bits) < LOAD * (self.count - self.floor):
            bits = min(bits + 1, self._most_bits)
        return bits

    def _grow(self, inserted: int) -> None:
        """Advance the growth of heads by one step, if anchors have outgrown them."""
        if self._coming is None:
            bits = self._bits_due()
            if bits == self._heads.bits:
                return
            self._coming, self._caught_up = self._make_heads(bits), self.floor
            self._cleaning = threading.Thread(target=self._coming.clean, name="clean-heads", daemon=True)
            self._cleaning.start()
        if self._cleaning is not None:
            if self._cleaning.is_alive():
                return
            self._cleaning = None
        most = max(self._growth.linked, self._growth.linked_an_anchor * inserted)
        start, end = self._caught_up, min(self._caught_up + most, self.count)
        self._link(self._coming, start, end)
        self._caught_up = end
        if end == self.count:
            self._heads, self._coming = self._coming, None

    def _sweep(self) -> None:
        """Sweep some of the heads whose anchors are all evicted, with every insert."""
        start, heads = self._swept, self.heads
        if start < heads:
            self._swept = min(start + SWEPT_AT_ONCE, heads)
            self._heads.sweep(self.floor - self._base, start, self._swept)

    def _link(self, heads: Heads, start: int, end: int, tables: slice = _ALL_TABLES) -> None:
        """Add the anchors [start, end), whose rows are stored, to their chains in these tables."""
        for first, row, n in self._runs(start, end):
            masks = self._dead.masks(first, first + n, self._skipped.masks(first, first + n))
            heads.link(self._rows[row : row + n], first - self._base, row, masks, tables)

    def search(self, probing: Probing) -> None:
        """Add this tier's pairs and bucket sizes to `probing`."""
        if self.count == self.floor:
            return
        criteria = probing.criteria(self._distance, self._dead.bits)
        probing.collector.add_packed(follow(self._heads.chains, self._ring, probing.queries, criteria))
        self.probes += probing.queries.keys.size

"""The hot tier: the newest anchors in RAM, as chained hash tables in flat NumPy arrays.

Anchors below `floor` end a chain, so letting go of the oldest needs no rebuild. Rows are a ring: an anchor
takes the place of one that left. When anchors outgrow the heads, larger ones are linked beside them, a little
with every insert, while the old ones answer: no insert waits for a rebuild.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from stream.tables.anchors import Dead, Skipped
from stream.tables.candidates import I64, expand
from stream.tables.chains import LONGEST_CHAIN, Chain, Chains
from stream.tables.design import U64, Design
from stream.tables.heads import Heads
from stream.tables.probing import Probing
from stream.tables.slots import U32

LOAD: Final = 4
"""Heads grow when a table has fewer than this many slots an anchor."""
LOADED_AT_ONCE: Final = 1 << 15
"""Anchors linked at once at start: arrays of some MiB."""
PAIRS: Final = 1 << 18
"""Pairs compared at once in long chains: 2 MiB an array."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How heads grow: sizes that bound the time of one insert."""

    first_slots: int = 1 << 22
    """Heads at first, 16 MiB."""
    linked: int = 1 << 13
    """Least anchors that one insert links in the coming heads: about 5 ms."""
    linked_an_anchor: int = 4
    """At least as many for every anchor inserted, so that the coming heads always catch up."""


PACE: Final = Pace()


class HotTier:
    """Anchors [floor, count) in RAM; `memory` bytes for heads and rows, more while anchors wait to freeze.

    While heads grow, coming ones and their links are there too: for a moment, up to twice the memory.
    """

    def __init__(
        self,
        design: Design,
        skipped: Skipped,
        dead: Dead,
        *,
        distance: int,
        memory: int,
        slack: int,
        pace: Pace = PACE,
    ) -> None:
        self._design = design
        self._skipped = skipped
        self._dead = dead
        self._distance = distance
        self._pace = pace
        row_bytes = 8 + 4 * design.tables
        self.budget: Final = max(0, memory // 2 // row_bytes - slack)
        """Anchors that the rows' half of the memory holds, `slack` of them free for the next generation."""
        longest = int(design.prefix_bits.max())
        first = max(1, (pace.first_slots // design.tables).bit_length() - 1)
        most = max(1, (memory // 2 // 4 // design.tables).bit_length() - 1)
        self._most_bits = min(max(first, most), longest)
        self.floor = 0
        self.count = 0
        self._origin = 0  # number of an anchor in row 0: origin <= floor < origin + rows
        # Fresh pages cost nothing until touched, and anchors touch them in order.
        self._fingerprints = np.empty(self.budget + 2 * slack, np.uint64)
        self._bit = np.append(np.uint64(1) << np.arange(design.width, dtype=np.uint64), np.uint64(0))
        self._chains = Chains()
        self.probes = 0
        self._heads = self._make_heads(first)
        self._heads.clean()
        self._coming: Heads | None = None
        self._cleaning: threading.Thread | None = None
        self._caught_up = 0  # anchors [floor, caught_up) are linked in the coming heads

    @property
    def slots(self) -> int:
        """Heads over all tables."""
        return self._heads.slots.size

    def _make_heads(self, bits: int) -> Heads:
        return Heads(self._design, bits, len(self._fingerprints))

    def load(self, fingerprints: U64, first: int) -> None:
        """Start with these anchors, numbered from `first`; the tier must be empty."""
        self.floor = self.count = self._origin = first
        self._make_room(len(fingerprints))
        self._fingerprints[: len(fingerprints)] = fingerprints
        self.count = first + len(fingerprints)
        bits = self._bits_due()
        if bits != self._heads.slots.bits:
            self._heads = self._make_heads(bits)
            self._heads.clean()
        for start in range(self.floor, self.count, LOADED_AT_ONCE):
            self._link(self._heads, start, min(start + LOADED_AT_ONCE, self.count))

    def rows(self, start: int, end: int) -> U64:
        """A copy of the fingerprints of the anchors [start, end), floor <= start."""
        parts = [self._fingerprints[row : row + n] for _, row, n in self._runs(start, end)]
        return np.concatenate(parts) if parts else np.zeros(0, np.uint64)

    def insert(self, fingerprints: U64) -> None:
        """Add anchors, numbered from `count`; what they skip must be in `skipped` already."""
        self._make_room(len(fingerprints))
        start, self.count = self.count, self.count + len(fingerprints)
        for first, row, n in self._runs(start, self.count):
            self._fingerprints[row : row + n] = fingerprints[first - start : first - start + n]
        self._link(self._heads, start, self.count)
        self._grow(len(fingerprints))

    def evict(self, floor: int) -> None:
        """Let go of anchors below `floor`."""
        if floor > self.floor:
            self.floor = floor
            self._caught_up = max(self._caught_up, floor)
            size = len(self._fingerprints)
            self._origin += (floor - self._origin) // size * size
            self._chains.clear()

    def _runs(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Anchors [start, end) as runs of rows: first number, first row, length."""
        size = len(self._fingerprints)
        while start < end:
            row = (start - self._origin) % size
            n = min(end - start, size - row)
            yield start, row, n
            start += n

    def _make_room(self, more: int) -> None:
        held = self.count - self.floor
        if held + more <= len(self._fingerprints):
            return
        size = max(held + more, 2 * len(self._fingerprints))
        runs = list(self._runs(self.floor, self.count))
        fingerprints = np.empty(size, np.uint64)
        for first, row, n in runs:
            at = first - self.floor
            fingerprints[at : at + n] = self._fingerprints[row : row + n]
        for heads in (self._heads, self._coming):
            if heads is not None:
                links = np.empty((size, self._design.tables), np.uint32)
                for first, row, n in runs:
                    at = first - self.floor
                    links[at : at + n] = heads.links[row : row + n]
                heads.links = links
        self._fingerprints = fingerprints
        self._origin = self.floor

    def _bits_due(self) -> int:
        bits = self._heads.slots.bits
        while bits < self._most_bits and (1 << bits) < LOAD * (self.count - self.floor):
            bits = min(bits + 1, self._most_bits)
        return bits

    def _grow(self, inserted: int) -> None:
        """Do some of the work of having more heads, where anchors have outgrown those that are there."""
        if self._coming is None:
            bits = self._bits_due()
            if bits == self._heads.slots.bits:
                return
            self._coming, self._caught_up = self._make_heads(bits), self.floor
            self._cleaning = threading.Thread(target=self._coming.clean, name="clean-heads", daemon=True)
            self._cleaning.start()
        if self._cleaning is not None:
            if self._cleaning.is_alive():
                return
            self._cleaning = None
        most = max(self._pace.linked, self._pace.linked_an_anchor * inserted)
        start, end = self._caught_up, min(self._caught_up + most, self.count)
        self._link(self._coming, start, end)
        self._caught_up = end
        if end == self.count:
            self._heads, self._coming = self._coming, None
            self._chains.clear()

    def _link(self, heads: Heads, start: int, end: int) -> None:
        """Put the anchors [start, end), already in their rows, into their chains."""
        for first, row, n in self._runs(start, end):
            rows = self._fingerprints[row : row + n]
            heads.link(rows, first, row, self._skipped.masks(first, first + n))

    def _row_of(self, current: U32) -> U32:
        """Rows of anchors given as number + 1."""
        at: U32 = current - np.uint32(1 + self._origin)
        np.minimum(at, at - np.uint32(len(self._fingerprints)), out=at)  # in the first lap this wraps
        return at

    def search(self, probing: Probing) -> None:
        """Add this tier's pairs and bucket sizes to `probing`."""
        if self.count == self.floor:
            return
        design, floor = self._design, np.uint32(self.floor)
        tables = np.uint32(design.tables)
        slots = self._heads.slots.of_probes(probing.keys, probing.bits, probing.flips).ravel()
        heads = self._heads.newest.take(slots)
        self.probes += len(slots)
        found = np.flatnonzero(heads > floor)
        current, probe = heads.take(found), found.astype(np.uint32)
        exact = int(np.searchsorted(probe, probing.cells)) if probing.sizes is not None else 0
        counted: list[U32] = []
        links = self._heads.links.reshape(-1)
        for _ in range(LONGEST_CHAIN):
            if not len(probe):
                break
            # Dividing by a scalar is cheaper than carrying cells, rows and tables from round to round.
            cell = probing.cells_of(probe)
            row = cell // tables
            at = self._row_of(current).astype(np.intp)
            apart = self._fingerprints.take(at)
            apart ^= probing.fingerprints.take(row)
            distance = np.bitwise_count(apart)
            near = np.flatnonzero(distance <= self._distance)
            table = cell - row * tables
            if len(near):
                wanted = probing.flipped(probe[near], cell[near], self._bit)
                near = near[(apart[near] & design.prefix_mask[table[near]]) == wanted]
                probing.found.add(row[near], current[near] - np.uint32(1), distance[near])
            if exact:
                apart = apart[:exact]
                apart &= design.prefix_mask.take(table[:exact])
                same = np.flatnonzero(apart == 0)
                if self._dead.count and len(same):
                    same = same[~self._dead.test(current[same].astype(np.int64) - 1)]
                counted.append(cell[same])
            at *= design.tables
            at += table
            current = links.take(at)
            further = np.flatnonzero(current > floor)
            if exact:
                exact = int(np.searchsorted(further, exact))
            current, probe = current.take(further), probe.take(further)
        cell = probing.cells_of(probe)
        if probing.sizes is not None and counted:
            cells = np.concatenate(counted)
            if exact:  # chains too long for rounds are counted as a whole below
                cells = cells[~np.isin(cells, cell[:exact])]
            probing.sizes[:] += np.bincount(cells, minlength=probing.cells)
        if len(probe):
            wanted = probing.flipped(probe, cell, self._bit)
            self._search_long(probing, slots.take(probe), cell.astype(np.int64), wanted, exact)

    def _search_long(self, probing: Probing, slots: U32, cell: I64, wanted: U64, exact: int) -> None:
        """The same for probes of long chains, each compared with its whole chain."""
        unique, chain_of = np.unique(slots, return_inverse=True)
        tables = self._design.tables
        chains = [self._chain(slot, slot >> self._heads.slots.bits) for slot in unique.tolist()]
        lengths = np.array([chain.size for chain in chains], np.int64)
        anchors = np.concatenate([chain.anchors for chain in chains])
        fingerprints = np.concatenate([chain.fingerprints for chain in chains])
        starts = np.cumsum(lengths) - lengths
        row = cell // tables
        mask = self._design.prefix_mask[cell - row * tables]
        cuts = np.cumsum(lengths[chain_of]) // PAIRS
        edges = [0, *(np.flatnonzero(np.diff(cuts)) + 1).tolist(), len(slots)]
        for first, last in pairwise(edges):
            chosen = chain_of[first:last]
            position, source = expand(starts[chosen], lengths[chosen])
            source += first
            apart = fingerprints.take(position)
            apart ^= probing.fingerprints.take(row.take(source))
            distance = np.bitwise_count(apart)
            apart &= mask.take(source)
            near = np.flatnonzero(distance <= self._distance)
            near = near[apart[near] == wanted[source[near]]]
            probing.found.add(row[source[near]], anchors[position[near]], distance[near])
            if probing.sizes is not None and first < exact:
                same = np.flatnonzero((apart == 0) & (source < exact))
                same = same[~self._dead.test(anchors[position[same]])]
                probing.sizes[:] += np.bincount(cell[source[same]], minlength=probing.cells)

    def _chain(self, slot: int, table: int) -> Chain:
        newest = int(self._heads.newest[slot])
        link = self._heads.links[:, table].item
        size = len(self._fingerprints)

        def walk(known: int) -> tuple[I64, U64]:
            stop, current, found = max(known, self.floor), newest, []
            while current > stop:
                found.append(current - 1)
                current = link((current - 1 - self._origin) % size)
            anchors = np.array(found[::-1], np.int64)
            return anchors, self._fingerprints.take((anchors - self._origin) % size)

        return self._chains.get(slot, newest, walk)

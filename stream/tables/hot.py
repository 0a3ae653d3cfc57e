"""The hot tier: the newest anchors in RAM, as chained hash tables in flat NumPy arrays.

`head[slot]` is the newest anchor of a slot (number + 1; 0 for none), `next[anchor, table]` the one before it.
Anchors below `floor` end a chain, so letting go of the oldest needs no rebuild.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np

from stream.tables.anchors import Dead, Skipped
from stream.tables.candidates import I64, expand
from stream.tables.chains import LONGEST_CHAIN, Chain, Chains
from stream.tables.design import U64, Design
from stream.tables.probing import Probing
from stream.tables.slots import U32, Slots

FIRST_SLOTS: Final = 1 << 22
"""Heads at first, 16 MiB."""
LOAD: Final = 4
"""Heads grow when a table has fewer than this many slots an anchor."""
REBUILD_ROWS: Final = 1 << 16
PAIRS: Final = 1 << 18
"""Pairs compared at once in long chains: 2 MiB an array."""


class HotTier:
    """Anchors [floor, count) in RAM; `memory` bytes for heads and rows, more while anchors wait to freeze."""

    def __init__(
        self, design: Design, skipped: Skipped, dead: Dead, *, distance: int, memory: int, slack: int
    ) -> None:
        self._design = design
        self._skipped = skipped
        self._dead = dead
        self._distance = distance
        row_bytes = 8 + 4 * design.tables
        self.budget: Final = max(0, memory // 2 // row_bytes - slack)
        """Anchors that the rows' half of the memory holds, `slack` of them free for the next generation."""
        self._slack = slack
        longest = int(design.prefix_bits.max())
        first = max(1, (FIRST_SLOTS // design.tables).bit_length() - 1)
        most = max(1, (memory // 2 // 4 // design.tables).bit_length() - 1)
        self._most_bits = min(max(first, most), longest)
        self.floor = 0
        self.count = 0
        self._base = 0  # number of the anchor in row 0
        rows = self.budget + 2 * slack
        # Fresh pages cost nothing until touched, and anchors touch them in order: no growing.
        self._fingerprints = np.empty(rows, np.uint64)
        self._next = np.empty((rows, design.tables), np.uint32)
        self._bit = np.append(np.uint64(1) << np.arange(design.width, dtype=np.uint64), np.uint64(0))
        self._chains = Chains()
        self.probes = 0
        self._make_heads(first)

    @property
    def slots(self) -> int:
        """Heads over all tables."""
        return self._slots.size

    def _make_heads(self, bits: int) -> None:
        self._slots = Slots(self._design, bits)
        self._head = np.empty(self._slots.size, np.uint32)
        self._head.fill(0)  # touched now, not at random later
        self._chains.clear()

    def load(self, fingerprints: U64, first: int) -> None:
        """Start with these anchors, numbered from `first`; the tier must be empty."""
        self.floor = self.count = self._base = first
        self._make_room(len(fingerprints))
        self._fingerprints[: len(fingerprints)] = fingerprints
        self.count = first + len(fingerprints)
        self._grow(always=True)

    def rows(self, start: int, end: int) -> U64:
        """Fingerprints of the anchors [start, end), floor <= start."""
        return self._fingerprints[start - self._base : end - self._base]

    def insert(self, fingerprints: U64) -> None:
        """Add anchors, numbered from `count`; what they skip must be in `skipped` already."""
        self._make_room(len(fingerprints))
        at = self.count - self._base
        self._fingerprints[at : at + len(fingerprints)] = fingerprints
        start, self.count = self.count, self.count + len(fingerprints)
        if not self._grow():
            self._link(start, self.count)

    def evict(self, floor: int) -> None:
        """Let go of anchors below `floor`."""
        if floor > self.floor:
            self.floor = floor
            self._chains.clear()

    def _make_room(self, more: int) -> None:
        held = self.count - self._base
        if held + more <= len(self._fingerprints):
            return
        gone = self.floor - self._base
        kept = held - gone
        if kept + more > len(self._fingerprints):
            size = max(kept + more, 2 * len(self._fingerprints))
            fingerprints = np.empty(size, np.uint64)
            links = np.empty((size, self._design.tables), np.uint32)
            fingerprints[:kept] = self._fingerprints[gone:held]
            links[:kept] = self._next[gone:held]
            self._fingerprints, self._next = fingerprints, links
        else:
            for start in range(0, kept, REBUILD_ROWS):  # in pieces: NumPy copies an overlapping source
                end = min(start + REBUILD_ROWS, kept)
                self._fingerprints[start:end] = self._fingerprints[gone + start : gone + end]
                self._next[start:end] = self._next[gone + start : gone + end]
        self._base = self.floor

    def _grow(self, *, always: bool = False) -> bool:
        """Make more heads where anchors have outgrown them, and link all anchors anew."""
        bits = self._slots.bits
        while bits < self._most_bits and (1 << bits) < LOAD * (self.count - self.floor):
            bits = min(bits + 2, self._most_bits)
        if bits == self._slots.bits and not always:
            return False
        if bits != self._slots.bits:
            self._make_heads(bits)
        for start in range(self.floor, self.count, REBUILD_ROWS):
            self._link(start, min(start + REBUILD_ROWS, self.count))
        return True

    def _link(self, start: int, end: int) -> None:
        """Put the anchors [start, end), already in their rows, at the heads of their chains."""
        at = start - self._base
        tables = self._design.tables
        slots = self._slots.of_keys(self._design.keys(self.rows(start, end))).ravel()
        links = self._next[at : at + end - start].reshape(-1)
        number = np.repeat(np.arange(start + 1, end + 1, dtype=np.uint32), tables)
        links[:] = self._head.take(slots)
        cells: I64 | None = None
        masks = self._skipped.masks(start, end)
        if masks is not None:
            enters = (masks[:, None] >> np.arange(tables, dtype=np.uint64) & np.uint64(1)) == 0
            cells = np.flatnonzero(enters)
            slots, number = slots[cells], number[cells]
        self._head[slots] = number
        winner = self._head.take(slots)
        lost = np.flatnonzero(winner != number)
        if not len(lost):
            return
        # Anchors of one call that share a slot: newest first, the oldest keeps its link.
        lost_cells = lost if cells is None else cells[lost]
        won_cells = (winner[lost].astype(np.int64) - 1 - start) * tables + lost_cells % tables
        won = won_cells if cells is None else cells.searchsorted(won_cells)
        rivals = np.unique(np.concatenate([lost, won]))
        order = rivals[np.argsort(slots[rivals], kind="stable")]
        slot, newest = slots[order], number[order]
        same = slot[1:] == slot[:-1]
        behind = np.flatnonzero(same)
        later = order[behind + 1]
        links[later if cells is None else cells[later]] = newest[behind]
        ends = np.append(np.flatnonzero(~same), len(order) - 1)
        self._head[slot[ends]] = newest[ends]

    def search(self, probing: Probing) -> None:
        """Add this tier's pairs and bucket sizes to `probing`."""
        if self.count == self.floor:
            return
        design, floor = self._design, np.uint32(self.floor)
        tables = design.tables
        slots = self._slots.of_probes(probing.keys, probing.bits, probing.flips).ravel()
        heads = self._head.take(slots)
        self.probes += len(slots)
        probe = np.flatnonzero(heads > floor)
        current = heads.take(probe)
        cell = probe % probing.cells
        row = cell // tables
        table = cell - row * tables
        wanted = probing.flipped(probe, cell, self._bit)
        exact = int(np.searchsorted(probe, probing.cells)) if probing.sizes is not None else 0
        counted: list[I64] = []
        links = self._next.reshape(-1)
        for _ in range(LONGEST_CHAIN):
            if not len(probe):
                break
            at = current.astype(np.int64)
            at -= 1 + self._base
            apart = self._fingerprints.take(at)
            apart ^= probing.fingerprints.take(row)
            distance = np.bitwise_count(apart)
            near = np.flatnonzero(distance <= self._distance)
            if len(near):
                near = near[(apart[near] & design.prefix_mask[table[near]]) == wanted[near]]
                probing.found.add(row[near], at[near] + self._base, distance[near])
            if exact:
                same = np.flatnonzero((apart[:exact] & design.prefix_mask.take(table[:exact])) == 0)
                if self._dead.count and len(same):
                    same = same[~self._dead.test(at[same] + self._base)]
                counted.append(cell[same])
            at *= tables
            at += table
            current = links.take(at)
            further = np.flatnonzero(current > floor)
            if exact:
                exact = int(np.searchsorted(further, exact))
            current, probe, cell = current.take(further), probe.take(further), cell.take(further)
            row, table, wanted = row.take(further), table.take(further), wanted.take(further)
        if probing.sizes is not None and counted:
            cells = np.concatenate(counted)
            if exact:  # chains too long for rounds are counted as a whole below
                cells = cells[~np.isin(cells, cell[:exact])]
            probing.sizes[:] += np.bincount(cells, minlength=probing.cells)
        if len(probe):
            self._search_long(probing, slots.take(probe), cell, wanted, exact)

    def _search_long(self, probing: Probing, slots: U32, cell: I64, wanted: U64, exact: int) -> None:
        """The same for probes of long chains, each compared with its whole chain."""
        unique, chain_of = np.unique(slots, return_inverse=True)
        tables = self._design.tables
        chains = [self._chain(slot, slot >> self._slots.bits) for slot in unique.tolist()]
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
        link = self._next[:, table].item

        def walk(newest: int) -> tuple[I64, U64]:
            stop, current, found = max(newest, self.floor), int(self._head[slot]), []
            while current > stop:
                found.append(current - 1)
                current = link(current - 1 - self._base)
            anchors = np.array(found[::-1], np.int64)
            return anchors, self._fingerprints.take(anchors - self._base)

        return self._chains.get(slot, int(self._head[slot]), walk)

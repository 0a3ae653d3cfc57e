"""The cold tier: anchors that are in RocksDB and no longer in RAM, but for a bit a bucket."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import numpy as np

from stream.compiled import compiled, popcount
from stream.tables.anchors import AnchorLog, Dead, Skipped
from stream.tables.arrays import I64, U8, U64
from stream.tables.design import Design
from stream.tables.found_pairs import FIRST_PAIRS, add_pair, count_live
from stream.tables.presence import LEAST_BITS, Presence
from stream.tables.probing import Probing
from stream.tables.rocks import Store, table_family
from stream.tables.runs import ENTRY_BYTES, Run, group_keys

LEAST_PRESENCE: Final = 64 << 20
"""Bytes that all presence together may take whatever memory is allowed."""
SLOTS_AN_ANCHOR: Final = 32
"""Most slots a table for each anchor of a run, rounded down to a power of two: of 16 to 32 empty buckets one
seems to hold something."""
_UNCOUNTED: Final = np.zeros(0, np.int64)


class ColdTier:
    """Answers for the anchors [0, anchors), all in runs.

    `memory` are bytes for the presence of what they hold; `background` has one thread, so that what is asked
    for is marked in the order of asking.
    """

    def __init__(
        self, store: Store, design: Design, log: AnchorLog, skipped: Skipped, dead: Dead,
        background: ThreadPoolExecutor, *, distance: int, memory: int,
    ) -> None:  # fmt: skip
        self._store = store
        self._design = design
        self._log = log
        self._skipped = skipped
        self._dead = dead
        self._distance = distance
        self._memory = max(memory, LEAST_PRESENCE)
        self.anchors = 0
        """Those below this number are answered for, dead ones included."""
        self.probes = 0
        """Groups read from RocksDB, of these:"""
        self.hits = 0
        """that were there."""
        self._runs: dict[Run, Presence | None] = {}
        self._coming: dict[Run, Presence | None] = {}
        """Will be there after a merge; marked like those that are."""
        self._background = background
        self._extending: tuple[int, Future[None]] | None = None
        self._closed = False

    def add(self, run: Run) -> None:
        """A run is in RocksDB; nothing of it is answered for until `extend`."""
        self._runs[run] = None

    def extend(self, end: int, generation: int, *, wait: bool) -> None:
        """Come closer to answering for all anchors below `end`, all in runs, in steps of a generation.

        They are marked in the background; with `wait`, returns when all are.
        """
        while self.anchors < end or self._extending is not None:
            if self._extending is None:
                to = self.anchors + generation
                self._extending = (to, self._mark(self.anchors, to))
            to, marked = self._extending
            if not (wait or marked.done()):
                return
            marked.result()
            self.anchors, self._extending = to, None

    def prepare(self, merged: Run) -> Future[None]:
        """Mark the presence of a run to come beside those of its parts: done when `replace` may be called."""
        marked_to = min(self._extending[0] if self._extending else self.anchors, merged.end)
        presence = self._coming[merged] = self._new_presence(merged) if marked_to > merged.first else None
        return self._submit([] if presence is None else [presence], merged.first, marked_to)

    def replace(self, merged: Run) -> None:
        """Read a run that is in RocksDB instead of its parts."""
        for part in merged.parts:
            del self._runs[part]
        self._runs[merged] = self._coming.pop(merged)

    def _mark(self, start: int, end: int) -> Future[None]:
        """Anchors of one generation, in every run that they are or will be in."""
        targets = []
        for runs in (self._runs, self._coming):
            for run, presence in runs.items():
                if run.first <= start < run.end:
                    marked = runs[run] = presence or self._new_presence(run)
                    targets.append(marked)
        return self._submit(targets, start, end)

    def _submit(self, targets: list[Presence], start: int, end: int) -> Future[None]:
        return self._background.submit(self._mark_all, [*self._presences().values()], targets, start, end)

    def _presences(self) -> dict[Run, Presence]:
        both = (*self._runs.items(), *self._coming.items())
        return {run: presence for run, presence in both if presence is not None}

    def _new_presence(self, run: Run) -> Presence:
        """As large as serves the run; where memory does not allow that, the most generous ones are halved
        before anything is marked."""
        wanted = (run.anchors * SLOTS_AN_ANCHOR).bit_length() - 1
        made = max(LEAST_BITS, min(wanted, int(self._design.prefix_bits.max())))
        others = self._presences()
        bits = {of: presence.due_bits for of, presence in others.items()} | {run: made}
        while self._design.tables * sum(1 << each for each in bits.values()) >> 3 > self._memory:
            most = max(bits, key=lambda of: ((1 << bits[of]) / of.anchors, of))
            if bits[most] == LEAST_BITS:
                break
            bits[most] -= 1
            if most in others:
                others[most].due_bits -= 1
        return Presence(self._design, run, bits[run])

    def _mark_all(self, kept: list[Presence], targets: list[Presence], start: int, end: int) -> None:
        for presence in kept:
            presence.halve()
        for first, rows in self._log.slices(start, end):
            if self._closed:
                return
            masks = self._skipped.masks(first, first + len(rows))
            for presence in targets:
                presence.mark(rows[:, 0], masks)

    def search(self, probing: Probing) -> None:
        """Add this tier's pairs and bucket sizes to `probing`."""
        met = [
            presence.meet(probing)
            for run, presence in list(self._runs.items())
            if presence is not None and run.first < self.anchors
        ]
        for table in range(self._design.tables if met else 0):
            groups, wanted, before = [], [], 0
            for run_groups, group_edges, run_wanted, wanted_edges in met:
                some = run_groups[group_edges[table] : group_edges[table + 1]]
                groups.append(some)
                pairs = run_wanted[2 * wanted_edges[table] : 2 * wanted_edges[table + 1]].reshape(-1, 2)
                pairs[:, 0] += np.uint64(before << 32)
                wanted.append(pairs)
                before += len(some)
            if before and not probing.found.too_many:
                entries, edges = self._read(table, np.concatenate(groups))
                probing.found.add_packed(self._match(probing, table, entries, edges, np.concatenate(wanted)))

    def _read(self, table: int, groups: U64) -> tuple[U64, I64]:
        """The entries of these groups, shape (e, 2), and where those of each begin and end."""
        values = self._store.get(table_family(table), group_keys(groups))
        self.probes += len(values)
        self.hits += len(values) - values.count(None)
        found = [value or b"" for value in values]
        edges = np.zeros(len(found) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, found), np.int64, len(found)) // ENTRY_BYTES, out=edges[1:])
        return np.frombuffer(b"".join(found), np.uint64).reshape(-1, 2), edges

    def _match(self, probing: Probing, table: int, entries: U64, edges: I64, wanted: U64) -> U64:
        return _match(
            entries,
            edges,
            wanted,
            probing.fingerprints,
            table,
            self._design.tables,
            self.anchors,
            self._distance,
            self._dead.bits,
            _UNCOUNTED if probing.sizes is None else probing.sizes,
            probing.found.room,
        )

    def close(self) -> None:
        """Mark no more."""
        self._closed = True


@compiled
def _match(
    entries: U64,
    edges: I64,
    wanted: U64,
    fingerprints: U64,
    table: int,
    tables: int,
    end: int,
    distance: int,
    dead: U8,
    sizes: I64,
    enough: int,
) -> U64:
    """Pairs of a row and an anchor below `end` of a bucket that it probes, packed as `Found` has them; not
    all where there are `enough` or more.

    Group g has `entries` [edges[g], edges[g + 1]); `wanted` (m, 2) is what `Met` says, over all runs. `sizes`
    (n * T) grows by the live ones of exact probes; of shape (0,) it does not.
    """
    pairs, found = np.empty(FIRST_PAIRS, np.uint64), 0
    for request in range(len(wanted)):
        if found >= enough:
            break
        row, exact = np.int64(wanted[request, 1] >> np.uint64(1)), wanted[request, 1] & np.uint64(1)
        low, fingerprint = wanted[request, 0] & np.uint64(0xFFFFFFFF), fingerprints[row]
        place = wanted[request, 0] >> np.uint64(32)
        at, to = edges[place], edges[place + np.uint64(1)]
        last = to
        while at < to:
            middle = (at + to) >> 1
            if entries[middle, 1] >> np.uint64(32) < low:
                at = middle + 1
            else:
                to = middle
        while at < last and entries[at, 1] >> np.uint64(32) == low:
            number = np.int64(entries[at, 1] & np.uint64(0xFFFFFFFF))
            if number >= end:  # still in RAM, and found there
                break
            if exact:
                count_live(sizes, row * tables + table, number, dead)
            apart = popcount(entries[at, 0] ^ fingerprint)
            if apart <= distance:
                pairs = add_pair(pairs, found, row, number, apart)
                found += 1
            at += 1
    return pairs[:found]

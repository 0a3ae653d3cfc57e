"""The cold tier: anchors in RocksDB. RAM holds only a presence bitmap of their buckets."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple

import numpy as np

from stream.compiled import compiled, popcount
from stream.tables.arrays import I64, U64
from stream.tables.cold.presence import LEAST_BITS, Presence
from stream.tables.cold.runs import ENTRY_BYTES, Run, group_keys
from stream.tables.design import Design
from stream.tables.search.packed_pairs import add_pair, count_live, no_pairs
from stream.tables.search.probing import Probing
from stream.tables.search.queries import Criteria, Queries
from stream.tables.store.anchors import IndexedAnchors
from stream.tables.store.rocks import Store, table_family

SLOTS_AN_ANCHOR: Final = 32
"""Most slots of a presence bitmap per anchor and table, rounded down to a power of two. The rate of false
positives is then one in 16 to 32."""


class GroupEntries(NamedTuple):
    """Groups that were read from one table."""

    entries: U64
    """(e, 2)"""
    edges: I64
    """Group g has the entries [edges[g], edges[g + 1])."""


class ColdTier:
    """Searches the anchors [0, anchors), all of which are in runs.

    `memory` is the size in bytes of all presence bitmaps. `background` has a single thread, so that bitmaps
    are updated in the order of requests.
    """

    def __init__(
        self, store: Store, design: Design, anchors: IndexedAnchors, background: ThreadPoolExecutor,
        *, distance: int, memory: int,
    ) -> None:  # fmt: skip
        self._store = store
        self._design = design
        self._log, self._skipped, self._dead = anchors.log, anchors.skipped, anchors.dead
        self._distance = distance
        self._memory = memory
        self.anchors = 0
        """Anchors below this number, dead ones included, are searched by this tier."""
        self.probes = 0
        """Groups read from RocksDB."""
        self.hits = 0
        """Groups found in RocksDB."""
        self._runs: dict[Run, Presence | None] = {}
        self._coming: dict[Run, Presence | None] = {}
        """Runs of merges in progress. Their bitmaps are updated together with those of existing runs."""
        self._background = background
        self._extending: tuple[int, Future[None]] | None = None
        self._closed = False

    def add(self, run: Run) -> None:
        """Register a run that is in RocksDB. It is searched only after `extend`."""
        self._runs[run] = None

    def extend(self, end: int, generation: int, *, wait: bool) -> None:
        """Make progress towards searching all anchors below `end`, which are in runs, by generations.

        Bitmaps are updated in the background. With `wait`, returns when all of it is done.
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
        """Build the bitmap of a merged run while its parts are still in use. `replace` may be called once the
        future is done."""
        marked_to = min(self._extending[0] if self._extending else self.anchors, merged.end)
        presence = self._coming[merged] = self._new_presence(merged) if marked_to > merged.first else None
        return self._submit([] if presence is None else [presence], merged.first, marked_to)

    def replace(self, merged: Run) -> None:
        """Search a merged run, now in RocksDB, instead of its parts."""
        for part in merged.parts:
            del self._runs[part]
        self._runs[merged] = self._coming.pop(merged)

    def _mark(self, start: int, end: int) -> Future[None]:
        """Mark the anchors of one generation in the bitmaps of all runs, existing or coming, that have
        them."""
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
        """A bitmap of the best size for the run. If memory does not suffice, the bitmaps with the most slots
        per anchor are halved before anything is marked."""
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
                presence.mark(rows, masks)

    def search(self, probing: Probing) -> None:
        """Add this tier's pairs and bucket sizes to `probing`."""
        by_run = [
            presence.groups_to_read(probing.queries)
            for run, presence in list(self._runs.items())
            if presence is not None and run.first < self.anchors
        ]
        for table in range(self._design.tables if by_run else 0):
            groups, wanted, before = [], [], 0
            for run_groups, group_edges, run_wanted, wanted_edges in by_run:
                some = run_groups[group_edges[table] : group_edges[table + 1]]
                groups.append(some)
                pairs = run_wanted[2 * wanted_edges[table] : 2 * wanted_edges[table + 1]].reshape(-1, 2)
                pairs[:, 0] += np.uint64(before << 32)
                wanted.append(pairs)
                before += len(some)
            if before and not probing.collector.is_full:
                read = self._read(table, np.concatenate(groups))
                criteria = probing.criteria(self._distance, self._dead.bits)
                probing.collector.add_packed(
                    _match(read, np.concatenate(wanted), probing.queries, criteria, table, self.anchors)
                )

    def _read(self, table: int, groups: U64) -> GroupEntries:
        values = self._store.get(table_family(self._design.families[table]), group_keys(groups))
        self.probes += len(values)
        self.hits += len(values) - values.count(None)
        group_bytes = [value or b"" for value in values]
        edges = np.zeros(len(group_bytes) + 1, np.int64)
        np.cumsum(
            np.fromiter(map(len, group_bytes), np.int64, len(group_bytes)) // ENTRY_BYTES, out=edges[1:]
        )
        return GroupEntries(np.frombuffer(b"".join(group_bytes), np.uint64).reshape(-1, 2), edges)

    def close(self) -> None:
        """Stop updating bitmaps."""
        self._closed = True


@compiled
def _match(
    groups: GroupEntries, wanted: U64, queries: Queries, criteria: Criteria, table: int, end: int
) -> U64:
    """Pairs of a row and an anchor below `end` in a bucket that it probes, packed as in `PairCollector`.
    Counts the live anchors in exact buckets. `wanted` (m, 2) is as in `GroupsToRead`, over all runs."""
    (entries, edges), (distance, dead, enough) = groups, criteria
    tables = queries.keys.shape[1]
    pairs = no_pairs()
    for request in range(len(wanted)):
        if pairs.size >= enough:
            break
        row, exact = np.int64(wanted[request, 1] >> np.uint64(1)), wanted[request, 1] & np.uint64(1)
        low, fingerprint = wanted[request, 0] & np.uint64(0xFFFFFFFF), queries.fingerprints[row]
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
            if number >= end:  # these are still searched in RAM
                break
            if exact:
                count_live(queries.sizes, row * tables + table, number, dead)
            apart = popcount(entries[at, 0] ^ fingerprint)
            if apart <= distance:
                pairs = add_pair(pairs, row, number, apart)
            at += 1
    return pairs.packed[: pairs.size]

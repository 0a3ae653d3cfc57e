"""The index of triples: searches the anchors that stand in triples of minima in place of full pairs.

Ordinary crawls fill no pair, and then nothing is stored or searched here. Where thousands of pages share a
template, a page looks into the three triples below each of its pairs that was full once.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from stream.compiled import compiled
from stream.fingerprint.scheme import MINIMA_WORDS
from stream.tables.arrays import I64, U64, distinct
from stream.tables.design import Design
from stream.tables.hot.tier import HeadGrowth
from stream.tables.search.nearest import EntryNumbers, anchor_of
from stream.tables.search.packed_pairs import pack_pair, unpacked
from stream.tables.search.pair_collector import MOST_ANCHORS, PairCollector
from stream.tables.search.prefixes_compiled import keys_of
from stream.tables.search.probing import Probing, SearchOptions
from stream.tables.search.result import ProbedTriples
from stream.tables.store.anchors import FIRST_ENTRY, StoredAnchors
from stream.tables.store.rocks import DEFAULT, Store, Writes
from stream.tables.tiers import Tiers, TierSizes
from stream.tables.triples.entries import Entries, rows_of_entries
from stream.tables.triples.keys import A_PAIR, DESIGN, PAIRS, pairs_above, prefix_of_triple
from stream.tables.triples.opened import no_pairs, opened_among, with_pairs

GROWTH: Final = HeadGrowth(first_heads=1 << 16)
"""Few heads at first, as ordinary crawls need none."""
OPENED_AT_ONCE: Final = 1 << 18
"""Anchors that are read at a time when opening, 8 MiB."""


class TripleIndex:
    """The anchors of a store that are in triples. Opening recovers everything from the store."""

    def __init__(
        self,
        store: Store,
        pairs: Design,
        anchors: StoredAnchors,
        options: SearchOptions,
        sizes: TierSizes,
    ) -> None:
        """`pairs` is the design of the tables of pairs."""
        self._pairs, self._options = pairs, options
        self._entries, self._anchors = Entries(anchors), anchors.log
        # The pairs of anchors that came before `_opened_from`, and of the others.
        self._opened_before, self._opened = no_pairs(), no_pairs()
        self._opened_from = anchors.log.first
        holders, triples, _ = self._entries.holders.columns()
        for first in range(0, len(holders), OPENED_AT_ONCE):
            some = slice(first, first + OPENED_AT_ONCE)
            self._open(anchors.log.take(holders[some]), triples[some].astype(np.uint64))
        dead = holders[anchors.dead.test(holders)]
        self._entries.dead.add(self._entries.holders.entries_of(dead)[0])
        self.tiers: Final = Tiers(store, DESIGN, self._entries, options.distance, sizes)

    @property
    def entries(self) -> int:
        """Number of entries of anchors in triples, with those of dead anchors, from the first one on."""
        return self._entries.log.count - self._entries.log.first

    def _open(self, rows: U64, triples: U64) -> None:
        keys = keys_of(rows, self._pairs.pieces)
        self._opened = with_pairs(self._opened, keys[pairs_above(triples)])

    @staticmethod
    def entries_of(skipped: dict[int, int]) -> int:
        """Number of entries of anchors with these masks."""
        return sum((mask >> PAIRS).bit_count() for mask in skipped.values())

    def insert(self, first: int, rows: U64, skipped: dict[int, int]) -> None:
        """Add those of the anchors from number `first` on that are in triples, by their rows (n, W + 1), and
        by the masks of those that met full pairs."""
        some = sorted(row for row, mask in skipped.items() if mask >> PAIRS)
        if some:
            masks = np.array([skipped[row] for row in some], np.uint64)
            self._entries.holders.add(np.array(some) + first, masks)
            triples = masks >> np.uint64(PAIRS)
            if self._entries.log.count - self._entries.dead.base > MOST_ANCHORS:
                self._entries.dead.rebase()
            self._open(rows[some], triples)
            self.tiers.insert(rows_of_entries(rows[some], triples))

    def raise_first(self, batch: Writes, first: int) -> None:
        """Let the entries begin with those of the anchor `first` or later. The caller writes `batch`."""
        entry = self._entries.raise_first(first)
        batch.put(DEFAULT, FIRST_ENTRY, entry.to_bytes(8, "little"))
        if first >= self._opened_from:  # the others are gone
            self._opened_before, self._opened = self._opened, no_pairs()
            self._opened_from = self._anchors.count

    def kill(self, anchors: I64) -> None:
        """Mark the entries of dead anchors as dead."""
        entries, _ = self._entries.holders.entries_of(distinct(anchors))
        self._entries.dead.add(entries)
        self.tiers.forget(entries)

    def search(self, probing: Probing) -> ProbedTriples:
        """Add pairs to `probing`, which tables of pairs were searched for. Pairs may have dead anchors.
        Returns the triples that were looked into."""
        sets = [each for each in (self._opened_before, self._opened) if each.size]
        if not sets:
            return ProbedTriples.none()
        each_cells = [opened_among(each, probing.queries.keys) for each in sets]
        cells = each_cells[0] if len(sets) == 1 else distinct(np.concatenate(each_cells))
        if not len(cells):
            return ProbedTriples.none()
        row = np.repeat(cells // PAIRS, A_PAIR)
        triple = (A_PAIR * (cells % PAIRS)[:, None] + np.arange(A_PAIR)).ravel()
        numbers = self._numbers(probing)
        words = _words_of_triples(probing.queries.words, row, triple)
        inner = Probing(
            DESIGN,
            words,
            probing.queries.fingerprints[row],
            self._options,
            PairCollector(probing.collector.room, self._entries.dead.base),
            probing.kept.of_triples(row, numbers),
        )
        self.tiers.search(inner)
        pairs = _of_anchors(inner.collector.packed(), row, numbers)
        probing.collector.add_packed(pairs)
        # What is gone counts, too: the search may have ended because of it.
        probing.collector.room = inner.collector.room
        return ProbedTriples(row, triple, inner.queries.sizes)

    def _numbers(self, probing: Probing) -> EntryNumbers:
        entries, holders = self._entries, self._entries.holders
        return EntryNumbers(
            holders.of_entries,
            entries.log.first - entries.dead.base,
            entries.dead.base - holders.first,
            holders.first_anchor - probing.first,
        )

    def maintain(self, *, wait: bool) -> None:
        """Freeze generations that are due, as `Tiers.maintain` does."""
        self.tiers.maintain(wait=wait)
        self._entries.trim(self.tiers.reads_from)

    @property
    def reads_from(self) -> int:
        """Anchors below this number are not read any more in the background."""
        anchor = self._entries.holders.anchor_of(self.tiers.reads_from)
        return self._anchors.count if anchor is None else anchor

    def close(self) -> None:
        """Cancel freezing and merging."""
        self.tiers.close()


@compiled
def _words_of_triples(words: U64, row: I64, triple: I64) -> U64:
    """The keys (m, W + 1) by which the table of triples has the triples (m,) of rows (m,) of `words`."""
    made = np.empty((len(row), MINIMA_WORDS + 1), np.uint64)
    for i in range(len(row)):
        made[i, :MINIMA_WORDS] = words[row[i]]
        made[i, MINIMA_WORDS] = prefix_of_triple(words, row[i], triple[i])
    return made


@compiled
def _of_anchors(pairs: U64, row: I64, numbers: EntryNumbers) -> U64:
    """The pairs of rows and anchors, packed, by those of probed triples and entries. `row` (m,) are the rows
    of the probed triples."""
    made, count = np.empty(len(pairs), np.uint64), 0
    for i in range(len(pairs)):
        probed, entry, apart = unpacked(pairs[i])
        if entry >= numbers.first:
            made[count] = pack_pair(row[probed], anchor_of(entry, numbers), apart)
            count += 1
    return made[:count]

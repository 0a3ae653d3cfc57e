"""The index of triples: searches the anchors that stand in triples of minima in place of full pairs.

Ordinary crawls fill no pair, and then nothing is stored or searched here. Where thousands of pages share a
template, a page looks into the three triples below each of its pairs that was full once.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from stream.compiled import compiled
from stream.fingerprint.scheme import MINIMA_WORDS
from stream.tables.arrays import I64, U32, U64, distinct
from stream.tables.design import Design
from stream.tables.hot.tier import HeadGrowth
from stream.tables.search.packed_pairs import pack_pair, unpacked
from stream.tables.search.pair_collector import PairCollector
from stream.tables.search.prefixes_compiled import keys_of
from stream.tables.search.probing import ALL, Nearest, Probing, SearchOptions
from stream.tables.search.result import ProbedTriples
from stream.tables.store.anchors import StoredAnchors
from stream.tables.store.rocks import Store
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
        *,
        memory: int,
        generation: int,
    ) -> None:
        """`pairs` is the design of the tables of pairs."""
        self._pairs, self._options = pairs, options._replace(flip_bits=0, flips=0)
        self._entries = Entries(anchors)
        self._opened = no_pairs()
        holders, triples, _ = self._entries.holders.columns()
        for first in range(0, len(holders), OPENED_AT_ONCE):
            some = slice(first, first + OPENED_AT_ONCE)
            self._open(anchors.log.take(holders[some]), triples[some].astype(np.uint64))
        dead = holders[anchors.dead.test(holders)]
        self._entries.dead.add(self._entries.holders.entries_of(dead)[0])
        sizes = TierSizes(memory, generation, GROWTH)
        self.tiers: Final = Tiers(store, DESIGN, self._entries, options.distance, sizes)

    @property
    def entries(self) -> int:
        """Number of entries of anchors in triples, with those of dead anchors."""
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
            self._open(rows[some], triples)
            self.tiers.insert(rows_of_entries(rows[some], triples))

    def kill(self, anchors: I64) -> None:
        """Mark the entries of dead anchors as dead."""
        entries, _ = self._entries.holders.entries_of(distinct(anchors))
        self._entries.dead.add(entries)
        self.tiers.forget(entries)

    def search(self, probing: Probing) -> ProbedTriples:
        """Add pairs to `probing`, which tables of pairs were searched for. Pairs may have dead anchors.
        Returns the triples that were looked into."""
        if not self._opened.size:
            return ProbedTriples.none()
        cells = opened_among(self._opened, probing.queries.keys)
        if not len(cells):
            return ProbedTriples.none()
        row = np.repeat(cells // PAIRS, A_PAIR)
        triple = (A_PAIR * (cells % PAIRS)[:, None] + np.arange(A_PAIR)).ravel()
        words = _words_of_triples(probing.queries.words, row, triple)
        inner = Probing(
            DESIGN,
            words,
            probing.queries.fingerprints[row],
            np.zeros((len(row), 0), np.uint8),
            self._options,
            PairCollector(probing.collector.room, self._entries.log.first),
            self._limit(probing, row),
        )
        self.tiers.search(inner)
        anchors = self._entries.holders.of_entries
        probing.collector.add_packed(_of_anchors(inner.collector.packed(), row, anchors))
        return ProbedTriples(row, triple, inner.queries.sizes)

    def _limit(self, probing: Probing, row: I64) -> Nearest:
        """What is left of the limit on the candidates of each row, for those of its triples."""
        nearest, first = probing.nearest, probing.first
        if nearest.most == ALL.most:
            return ALL
        holders = self._entries.holders
        entries, index = holders.entries_of(nearest.mortal + first)
        youngest = holders.last_entry_of(nearest.bounds[:, 1] + first)
        return Nearest(
            nearest.most,
            nearest.within[row],
            entries - holders.first,
            np.searchsorted(row, nearest.dies[index]),
            row,
            np.column_stack([nearest.bounds[:, 0], youngest - holders.first]),
        )

    def maintain(self, *, wait: bool) -> None:
        """Freeze generations that are due, as `Tiers.maintain` does."""
        self.tiers.maintain(wait=wait)

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
def _of_anchors(pairs: U64, row: I64, anchors: U32) -> U64:
    """The pairs of rows and anchors, packed, by those of probed triples and entries. `row` (m,) are the rows
    of the probed triples, and `anchors` (e,) those of the entries, as in `Holders.of_entries`."""
    made = np.empty(len(pairs), np.uint64)
    for i in range(len(pairs)):
        probed, entry, apart = unpacked(pairs[i])
        made[i] = pack_pair(row[probed], anchors[entry], apart)
    return made

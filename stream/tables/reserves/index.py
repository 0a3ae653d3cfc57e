"""The index of reserves: searches the anchors that stand in reserves in place of full first pairs.

Ordinary crawls fill no pair, and then nothing is stored or searched here. Where many pages share a template,
a page looks into all of its reserves if an anchor stayed out of any of its first pairs (rule 16).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled
from stream.fingerprint.minima import KEY_WORDS
from stream.tables.arrays import I64, U64, distinct
from stream.tables.design import Design
from stream.tables.hot.tier import HeadGrowth
from stream.tables.reserves.entries import Entries, rows_of_entries
from stream.tables.reserves.keys import DESIGN, PAIRS, RESERVES, prefix_of_reserve
from stream.tables.reserves.stayed_out import looking_further, nobody, with_anchors
from stream.tables.search.packed_pairs import pack_pair, unpacked
from stream.tables.search.pair_collector import MOST_ANCHORS, PairCollector
from stream.tables.search.prefixes_compiled import keys_of
from stream.tables.search.probing import Probing, SearchOptions
from stream.tables.store.anchors import FIRST_ENTRY, StoredAnchors
from stream.tables.store.rocks import DEFAULT, Store, Writes
from stream.tables.tiers import Tiers, TierSizes

GROWTH: Final = HeadGrowth(first_heads=1 << 16)
"""Few heads at first, as ordinary crawls need none."""
READ_AT_ONCE: Final = 1 << 18
"""Anchors that are read at a time when opening, 8 MiB."""


class ReserveIndex:
    """The anchors of a store that are in reserves. Opening recovers everything from the store."""

    def __init__(
        self,
        store: Store,
        pairs: Design,
        anchors: StoredAnchors,
        options: SearchOptions,
        sizes: TierSizes,
    ) -> None:
        """`pairs` is the design of the tables of first pairs."""
        self._pairs, self._options = pairs, options
        self._entries, self._anchors = Entries(anchors), anchors.log
        self._stayed_out = nobody()
        numbers, masks = anchors.skipped.entries(anchors.log.first, anchors.log.count)
        for first in range(0, len(numbers), READ_AT_ONCE):
            some = slice(first, first + READ_AT_ONCE)
            self._note(anchors.log.take(numbers[some]), masks[some], numbers[some])
        holders = self._entries.holders.columns().anchors
        dead = holders[anchors.dead.test(holders)]
        self._entries.dead.add(self._entries.holders.entries_of(dead)[0])
        self.tiers: Final = Tiers(store, DESIGN, self._entries, options.distance, sizes)

    @property
    def entries(self) -> int:
        """Number of entries of anchors in reserves, with those of dead anchors, from the first one on."""
        return self._entries.log.count - self._entries.log.first

    def _note(self, rows: U64, masks: U64, numbers: I64) -> None:
        keys = keys_of(rows, self._pairs.pieces)
        self._stayed_out = with_anchors(self._stayed_out, keys, masks, numbers, self._anchors.first)

    @staticmethod
    def entries_of(skipped: dict[int, int]) -> int:
        """Number of entries of anchors with these masks."""
        return sum((mask >> PAIRS).bit_count() for mask in skipped.values())

    def insert(self, first: int, rows: U64, further: U64, skipped: dict[int, int]) -> None:
        """Add those of the anchors from number `first` on that met full pairs, by their rows (n, W + 1), the
        words of their further minima, and their masks."""
        some = sorted(skipped)
        if some:
            masks, numbers = np.array([skipped[row] for row in some], np.uint64), np.array(some) + first
            self._entries.holders.add(numbers, masks)
            if self._entries.log.count - self._entries.dead.base > MOST_ANCHORS:
                self._entries.dead.rebase()
            self._note(rows[some], masks, numbers)
            self.tiers.insert(rows_of_entries(rows[some], further[some], masks >> np.uint64(PAIRS)))

    def raise_first(self, batch: Writes, first: int) -> None:
        """Let the entries begin with those of the anchor `first` or later. The caller writes `batch`."""
        entry = self._entries.raise_first(first)
        batch.put(DEFAULT, FIRST_ENTRY, entry.to_bytes(8, "little"))

    def kill(self, anchors: I64) -> None:
        """Mark the entries of dead anchors as dead."""
        entries, _ = self._entries.holders.entries_of(distinct(anchors))
        self._entries.dead.add(entries)
        self.tiers.forget(entries)

    def looking_further(self, keys: U64) -> NDArray[np.bool_]:
        """Whether each page looks into all reserves (n,), by the keys of its first pairs (n, PAIRS)."""
        return looking_further(self._stayed_out, keys, self._anchors.first)

    def search(self, probing: Probing, rows: I64, most: int) -> tuple[U64, I64] | None:
        """Search the reserves of some rows (r,) of `probing`. Returns pairs of a row and an anchor, packed,
        with repetitions and dead anchors, and the number of live anchors in each reserve (r, RESERVES). None
        if there are more than `most` pairs."""
        row = np.repeat(rows, RESERVES)
        inner = Probing(
            DESIGN,
            _words_of_reserves(probing.queries.words, rows),
            probing.queries.fingerprints[row],
            self._options,
            PairCollector(most, self._entries.dead.base),
        )
        self.tiers.search(inner)
        if inner.collector.is_full:  # perhaps of entries that are gone
            return None
        entries, holders = self._entries, self._entries.holders
        pairs = _of_anchors(
            inner.collector.packed(),
            row,
            holders.of_entries,
            entries.log.first - entries.dead.base,
            entries.dead.base - holders.first,
            holders.first_anchor - probing.first,
        )
        return pairs, inner.queries.sizes.reshape(-1, RESERVES)

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
def _words_of_reserves(words: U64, rows: I64) -> U64:
    """The keys (r * RESERVES, W + 1) by which the table of reserves has those of some rows (r,) of minima."""
    made = np.empty((len(rows) * RESERVES, KEY_WORDS + 1), np.uint64)
    for i in range(len(made)):
        row = rows[i // RESERVES]
        made[i, :KEY_WORDS] = words[row, :KEY_WORDS]
        made[i, KEY_WORDS] = prefix_of_reserve(words, row, i % RESERVES)
    return made


@compiled
def _of_anchors(
    pairs: U64, row: I64, anchors: NDArray[np.uint32], first: int, entry: int, anchor: int
) -> U64:
    """The pairs of rows and anchors, packed, by those of queries and entries. `row` (m,) are the rows of the
    queries. Entries below `first` are gone; `entry` makes the number of one its index in `anchors`, and
    `anchor` a value of these the number of an anchor."""
    made, count = np.empty(len(pairs), np.uint64), 0
    for i in range(len(pairs)):
        query, number, apart = unpacked(pairs[i])
        if number >= first:
            made[count] = pack_pair(row[query], np.int64(anchors[number + entry]) + anchor, apart)
            count += 1
    return made[:count]

"""The paper's tables in compressed blocks: about half the memory, and a block is decoded per probe (section
3.2)."""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from stream.fingerprint.lanes import distances, words_of
from stream.offline.compressed_blocks import encode, expected_bytes
from stream.offline.layouts import Layout
from stream.offline.pairs import Pairs
from stream.tables.arrays import U64, distinct
from tests.bench.methods.method import Cost, Method
from tests.bench.methods.permutation import key_shift, permute
from tests.bench.methods.ranges import expand


class CompressedTables(Method):
    """Tables with two blocks of bits in front, compressed. A probe decodes the blocks that may contain its
    prefix.

    Compression needs sorted values, so the row number of each fingerprint is stored separately.
    """

    summary: ClassVar = "10 compressed tables, a block opened a probe"

    def __init__(self, stored: U64, width: int, distance: int) -> None:
        super().__init__(stored, width, distance)
        self.layout: Final = Layout.choose(distance + 2, 2, width)
        self._tables, self._rows = [], []
        for table in range(self.layout.tables):
            permuted = permute(self.stored, self.layout, table)
            order = np.lexsort(permuted.T[::-1])
            self._tables.append(encode(permuted[order], width))
            self._rows.append(order.astype(np.uint32))

    def _search(self, queries: U64) -> Pairs:
        parts = []
        for table, held in enumerate(self._tables):
            if not held.count:
                continue
            permuted = permute(queries, self.layout, table)
            shift = key_shift(self.layout, table)
            low = permuted[:, 0] >> shift << shift
            high = low | ((np.uint64(1) << shift) - np.uint64(1))
            last_of = np.ascontiguousarray(held.keys[:, 0])
            # After a block with the key `high`, the next block may begin with the same value.
            from_block = last_of.searchsorted(low)
            to_block = np.minimum(last_of.searchsorted(high, side="right") + 1, len(last_of))
            block, row = expand(from_block, to_block - from_block)
            opened = distinct(block)
            values, starts = held.decode(opened), held.starts
            sizes = held.counts[opened].astype(np.int64)
            begin = np.cumsum(sizes) - sizes
            which = opened.searchsorted(block)
            place, source = expand(begin[which], sizes[which])
            of = row[source]
            inside = (values[place, 0] >= low[of]) & (values[place, 0] <= high[of])
            place, of, source = place[inside], of[inside], source[inside]
            self.candidates += len(place)
            apart = distances(permuted[of], values[place])
            near = np.flatnonzero(apart <= self.distance)
            sorted_place = starts[block[source[near]]] + place[near] - begin[which[source[near]]]
            parts.append(Pairs(of[near], self._rows[table][sorted_place].astype(np.int64), apart[near]))
        self.probes += len(queries) * self.layout.tables
        return Pairs.merge(parts)

    @property
    def bytes(self) -> int:
        return sum(held.bytes for held in self._tables) + sum(rows.nbytes for rows in self._rows)

    @classmethod
    def predicted(cls, stored: int, width: int, distance: int) -> Cost:
        words_of(width)
        layout = Layout.choose(distance + 2, 2, width)
        candidates = float((stored / 2.0**layout.prefix_bits).sum())
        return Cost(layout.tables, candidates, layout.tables * (expected_bytes(stored, width) + 4 * stored))

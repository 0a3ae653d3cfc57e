"""The limit on the candidates of rows that have very many, and those that a search keeps by it."""

from __future__ import annotations

import sys
from typing import Final, NamedTuple, Self

import numpy as np

from stream.compiled import compiled, inlined, move_within
from stream.tables.arrays import I64, U32, U64
from stream.tables.search.packed_pairs import Integer, pack_pair, place_among

KEPT_AT_ONCE: Final = 1 << 21
"""Most pairs that one search may keep, 16 MiB. There is no limit for rows that want more each."""
SEEN: Final = 1 << 11
"""Anchors of which it is known that they were looked at: 16 KiB, which stay in the CPU cache."""
_LAST: Final = np.uint64((1 << 64) - 1)
_PAIR: Final = np.uint64((1 << 40) - 1)
"""Mask of a packed pair without its row."""
_RANK: Final = np.uint64(40)
_ONE: Final = np.uint64(1)


class Nearest(NamedTuple):
    """A limit on the candidates of a row that has very many: the live anchors of the least rank, of those of
    equal rank the oldest."""

    most: int
    """Number of candidates wanted per row."""
    within: I64
    """The largest distance at which an anchor counts, for each row (n,)."""
    mortal: I64
    """Numbers of the anchors that die within this batch (k,), ascending."""
    dies: I64
    """The row from which on each of them is dead (k,)."""

    @property
    def limits(self) -> bool:
        """Whether a search keeps no more than that."""
        return self.most <= KEPT_AT_ONCE

    def rows_of(self, anchors: I64, alive: int) -> I64:
        """Return the row from which on each of m anchors is dead, `alive` for those that do not die."""
        rows: I64 = np.full(len(anchors), alive)
        if len(self.mortal):
            place = np.searchsorted(self.mortal, anchors)
            dead = self.mortal.take(place, mode="clip") == anchors
            rows[dead] = self.dies[place[dead]]
        return rows

    def from_row(self, row: int) -> Nearest:
        """The same limit, with rows counted from `row` on."""
        return self._replace(within=self.within[row:], dies=self.dies - row) if row else self


ALL: Final = Nearest(sys.maxsize, *np.zeros((3, 0), np.int64))


class EntryNumbers(NamedTuple):
    """How the numbers of what is searched become those of anchors in pairs: where entries of anchors in
    triples are searched. Of anchors themselves, `anchors` has the shape (0,), and numbers are the same."""

    anchors: U32
    """`Holders.of_entries`."""
    first: int
    """Entries below it are gone."""
    entry: int
    """What makes the number of an entry its index in `anchors`."""
    anchor: int
    """What makes a value of `anchors` the number of an anchor."""


class Kept(NamedTuple):
    """The nearest candidates of n pages that one search found so far, by `Nearest`. Numbers of anchors are
    relative to the first one, as in pairs."""

    most: int
    """`Nearest.most`; greater than KEPT_AT_ONCE if nothing is kept, as there is no limit."""
    within: I64
    """`Nearest.within`: the largest distance at which an anchor counts, for each page (n,)."""
    mortal: I64
    """Anchors that die within this batch (k,), ascending."""
    dies: I64
    """The page from which on each of them is dead (k,)."""
    page: I64
    """The page of each of the queries (m,). Triples are queries of their own."""
    order: I64
    """The queries in the order in which they are searched for (m,): pages that share a bucket follow each
    other, so that it is copied once. (0,): as they are."""
    numbers: EntryNumbers
    pairs: U64
    """(n, most): those of each page, ascending, as rank << 40 | number << 8 | distance."""
    size: I64
    """How many each page has (n,)."""
    seen: U64
    """(SEEN,), a direct-mapped cache: (page + 1) << 40 | number of anchors that were looked at. Most that are
    near are in several buckets."""
    last: U64
    """The last one of each page that has as many as are wanted, else the greatest number (n,). What is not
    before it is not among the nearest."""

    @classmethod
    def begin(cls, nearest: Nearest, rows: int, first: int) -> Self:
        """Nothing as yet, for so many rows, in an index whose first anchor is `first`."""
        rows = rows if nearest.limits else 0
        return cls(
            nearest.most,
            nearest.within,
            nearest.mortal - first,
            nearest.dies,
            np.arange(rows),
            np.zeros(0, np.int64),
            EntryNumbers(np.zeros(0, np.uint32), 0, 0, 0),
            np.empty((rows, nearest.most if rows else 0), np.uint64),
            np.zeros(rows, np.int64),
            np.zeros(SEEN if rows else 0, np.uint64),
            np.full(rows, _LAST),
        )

    def by_bucket(self, keys: U64) -> Kept:
        """The same, with queries in the order of one of their buckets, given by keys (n,)."""
        return self._replace(order=np.argsort(keys, kind="stable"))

    def of_triples(self, row: I64, numbers: EntryNumbers) -> Kept:
        """The same for queries (m,) of these pages, ascending. Numbers are those of entries. If there is no
        limit, nothing is kept, and pairs go on to have the numbers of what is searched."""
        if not self.limits:
            return self
        order = self.order
        if len(order):
            turn = np.empty(len(order), np.uint16 if len(order) <= 1 << 16 else np.int64)
            turn[order] = np.arange(len(order))
            order = np.argsort(turn[row], kind="stable")  # 16 bits are sorted in linear time
        return self._replace(page=row, order=order, numbers=numbers)

    @property
    def limits(self) -> bool:
        """Whether there is a limit."""
        return self.most <= KEPT_AT_ONCE


@inlined
def anchor_of(number: Integer, numbers: EntryNumbers) -> np.int64:
    """The number of an anchor that is searched, or of the anchor of an entry."""
    if not numbers.anchors.size:
        return np.int64(number)
    return np.int64(numbers.anchors[number + numbers.entry]) + numbers.anchor


@inlined
def keep(pairs: U64, sizes: I64, last: U64, page: np.int64, pair: np.uint64) -> None:
    """Keep a live candidate of a page, packed as in `Kept`, if it is among the nearest and not there yet.

    Arrays are those of `Kept`.
    """
    if pair >= last[page]:
        return
    size, most = sizes[page], pairs.shape[1]
    low, left = np.uint64(0), np.uint64(size)
    while left:  # branch-free, as half of the branches would be mispredicted
        half = (left + _ONE) >> _ONE
        low += half * np.uint64(pairs[page, low + half - _ONE] < pair)
        left -= half
    if low < np.uint64(size) and pairs[page, low] == pair:
        return
    end, place = min(size, most - 1), np.int64(low)
    move_within(pairs, page * most + place + 1, page * most + place, end - place)
    pairs[page, place] = pair
    sizes[page] = end + 1
    if end + 1 == most:
        last[page] = pairs[page, end]


@inlined
def keep_alive(kept: Kept, query: np.int64, rank: np.int64, number: Integer, apart: np.int64) -> None:
    """Keep what a query found, an anchor or an entry that is not dead yet, for the query's page, unless it is
    too far from that or dead by then."""
    page = kept.page[query]
    if apart > kept.within[page] or np.uint64(rank) > kept.last[page] >> _RANK:
        return
    anchor = anchor_of(number, kept.numbers)
    mortal = place_among(anchor, kept.mortal)
    if mortal < 0 or kept.dies[mortal] > page:
        keep(kept.pairs, kept.size, kept.last, page, pack_pair(rank, anchor, apart))


@compiled
def kept_pairs(kept: Kept) -> U64:
    """What is kept, packed as in `PairCollector`, distinct and ascending."""
    pairs, count, total = kept.pairs, kept.size, np.int64(0)
    for page in range(len(count)):
        total += count[page]
    packed, end = np.empty(total, np.uint64), np.int64(0)
    for page in range(len(count)):
        start, row = end, np.uint64(page) << _RANK
        for at in range(count[page]):
            packed[end] = row | pairs[page, at] & _PAIR
            end += 1
        packed[start:end].sort()
    return packed

"""The hot tier: the newest anchors in RAM, a hash table for each generation.

A generation has a table for some of its anchors at first, which grows up to a known size, and is dropped as a
whole once its run answers.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.tables.arrays import I64, U64
from stream.tables.design import Design
from stream.tables.hot.buckets import (
    SLOTS,
    Buckets,
    Here,
    enter,
    enter_reserves,
    find,
    leave,
    leave_reserves,
    move,
)
from stream.tables.reserves.keys import entries_of
from stream.tables.search.probing import Probing

LOAD: Final = 2 / 3
"""Share of the slots of a full generation that are taken, if no two anchors share a bucket."""
FEW: Final = 1 << 14
"""Anchors for which there are slots at first, in 1.4 MB: a small index needs no more, and whole pages are
touched at random."""
GROWTH: Final = 4
"""By how much slots become more. Few of them stay in the processor's caches: tables of 50,000 anchors are
searched and filled in .8 of the time that slots for a million take."""
MOST_ROWS: Final = 1 << 25
"""Anchors of a generation: a slot has 31 bits for a row and a table."""
_CACHE_LINE: Final = 64
NO_TABLE: Final = ~np.uint64(0)
"""The mask of an anchor that enters no table."""


def lines_of(design: Design, anchors: int) -> int:
    """Lines of slots of a generation."""
    return int(anchors * design.tables / LOAD / SLOTS) + 1


def bytes_of(design: Design, anchors: int) -> int:
    """RAM in bytes of a full generation whose anchors share no buckets."""
    return lines_of(design, anchors) * _CACHE_LINE + anchors * (design.words + 1) * 8


class Generation:
    """Anchors of which the first has the number `first`, and the buckets that they are in.

    The system allocates the memory of rows as it is first used.
    """

    def __init__(self, design: Design, first: int, anchors: int) -> None:
        self._design, self._anchors, self._room = design, anchors, min(anchors, FEW)
        slots, none = _empty_lines(lines_of(design, self._room)), np.zeros(0, np.uint64)
        self.first: Final = first
        self.count = 0
        """Number of anchors."""
        self._buckets = Buckets(
            tags=slots.view(np.uint16),
            values=slots.view(np.uint32),
            rows=np.empty((anchors, design.words + 1), np.uint64),
            pieces=design.pieces,
            keys=none,
            shared=np.zeros((0, 3), np.int64),
            prints=none,
            members=np.zeros(0, np.uint32),
            seed=np.array([secrets.randbits(64)], np.uint64),
            many=0,
            end=0,
        )
        self._entries: U64 = np.empty((2, 0), np.uint64)
        self._entered = 0

    @property
    def rows(self) -> U64:
        """The rows (n, W + 1) of its anchors. Those that are not there have any."""
        return self._buckets.rows[: self.count]

    @property
    def reserves(self) -> tuple[U64, U64]:
        """The rows (k,), ascending, of anchors in reserves, and the keys of these (k,)."""
        rows, keys = self._entries[:, : self._entered]
        return rows, keys

    def insert(
        self, first: int, rows: U64, masks: U64, entries: tuple[U64, U64], dead: NDArray[np.bool_]
    ) -> None:
        """Add anchors by their rows (n, W + 1), numbered from `first`, in all tables but those of their masks
        (n,), and in reserves by `entries_of`. Those that are dead (n,) enter none."""
        start = first - self.first
        self.count = start + len(rows)
        if self.count > self._room:
            self.enlarge()
        self._buckets.rows[start : self.count] = rows
        self._buckets = enter(self._buckets, start, np.where(dead, NO_TABLE, masks))
        of_rows, keys = entries
        if len(keys):
            end = self._entered + len(keys)
            if end > self._entries.shape[1]:
                room = np.empty((2, 2 * end), np.uint64)
                room[:, : self._entered] = self._entries[:, : self._entered]
                self._entries = room
            self._entries[:, self._entered : end] = of_rows + np.uint64(start), keys
            entered = self._entries[:, self._entered : end][:, ~dead[of_rows]]
            self._buckets = enter_reserves(self._buckets, entered[0].copy(), entered[1].copy())
            self._entered = end

    def enlarge(self) -> None:
        """Make slots for more anchors of the generation, at most all."""
        while self._room < self.count:
            self._room = min(GROWTH * self._room, self._anchors)
        slots = _empty_lines(lines_of(self._design, self._room))
        larger = self._buckets._replace(tags=slots.view(np.uint16), values=slots.view(np.uint32))
        move(self._buckets, larger)
        self._buckets = larger

    def remove(self, anchors: I64) -> None:
        """Remove dead anchors from their buckets, as far as they have entered any."""
        rows, (of_rows, keys) = anchors - self.first, self.reserves
        rows = rows[rows < self.count]
        leave(self._buckets, rows)
        if len(keys):
            starts, ends = (
                np.searchsorted(of_rows, rows.astype(np.uint64), side) for side in ("left", "right")
            )
            sizes = ends - starts
            entered = np.repeat(ends - np.cumsum(sizes), sizes) + np.arange(sizes.sum())
            leave_reserves(self._buckets, of_rows[entered], keys[entered])

    def search(self, probing: Probing, first: int) -> None:
        """Add the pairs and bucket sizes of the anchors from `first` on to `probing`."""
        here = Here(self.first - probing.first, max(0, first - self.first))
        probing.collector.add_packed(find(self._buckets, probing.queries, probing.criteria, here))


def _empty_lines(lines: int) -> U64:
    """So many empty lines of slots, each of which is a cache line."""
    room = np.zeros((lines + 1) * _CACHE_LINE // 8, np.uint64)
    start = -room.ctypes.data % _CACHE_LINE // 8
    return room[start : start + lines * _CACHE_LINE // 8]


class HotTier:
    """Searches the anchors from the first generation on that no run answers for."""

    def __init__(self, design: Design, anchors: int) -> None:
        """`anchors` is that of a generation."""
        self._design, self._anchors = design, anchors
        self._generations: dict[int, Generation] = {}
        self.probes = 0
        """Buckets probed."""

    def generation(self, number: int) -> Generation:
        """The generation of this number."""
        return self._generations[number]

    def insert(
        self, first: int, rows: U64, words: U64, masks: U64, reserves: U64, dead: NDArray[np.bool_]
    ) -> None:
        """Add anchors by their rows (n, W + 1), the words of their minima, the masks (n,) of the tables that
        they are kept out of and of the reserves that they enter, and whether they are dead (n,)."""
        start = 0
        while start < len(rows):
            number = (first + start) // self._anchors
            if number not in self._generations:
                self._generations[number] = Generation(self._design, number * self._anchors, self._anchors)
            some = slice(start, start + (number + 1) * self._anchors - first - start)
            entries = entries_of(words[some], reserves[some])
            self._generations[number].insert(first + start, rows[some], masks[some], entries, dead[some])
            start = some.stop

    def _by_generation(self, anchors: I64) -> Iterator[tuple[Generation, I64]]:
        """Each generation that has some of these anchors (n,), and their indexes."""
        numbers = anchors // self._anchors
        for number, generation in self._generations.items():
            some = np.flatnonzero(numbers == number)
            if len(some):
                yield generation, some

    def remove(self, anchors: I64) -> None:
        """Remove these dead anchors from their buckets, as far as they are here."""
        for generation, some in self._by_generation(anchors):
            generation.remove(anchors[some])

    def rows_of(self, anchors: I64) -> Iterator[tuple[U64, I64, I64]]:
        """The rows of each generation that has some of these anchors (n,), their places there, and their
        indexes."""
        for generation, some in self._by_generation(anchors):
            yield generation.rows, anchors[some] - generation.first, some

    def drop(self, end: int) -> None:
        """Drop the generations whose anchors are all below `end`."""
        for number in [each for each in self._generations if (each + 1) * self._anchors <= end]:
            del self._generations[number]

    def search(self, probing: Probing, first: int) -> None:
        """Add the pairs and bucket sizes of the anchors from `first` on to `probing`."""
        for generation in self._generations.values():
            if not probing.collector.is_full:
                generation.search(probing, first)
        self.probes += probing.queries.keys.size * len(self._generations)

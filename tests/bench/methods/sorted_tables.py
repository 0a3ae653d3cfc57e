"""The paper's tables: sorted permuted fingerprints, searched by the query's prefix (sections 3 and 3.1)."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from stream.errors import SettingsError
from stream.fingerprint.lanes import distances, words_of
from stream.offline.layouts import Layout
from stream.offline.pairs import Pairs
from stream.scratch import ScratchDirectory
from stream.tables.arrays import I64, U64
from tests.bench.methods.interpolation import interpolate
from tests.bench.methods.method import Cost, Method
from tests.bench.methods.permutation import key_shift, permute
from tests.bench.methods.ranges import expand

Find = Literal["binary", "interpolation"]
Probing = Literal["turn", "threads", "processes"]

AT_ONCE: Final = 1 << 21
"""Candidates compared at a time; they take 64 MiB with their indexes."""


@dataclass(frozen=True, slots=True)
class SortedTable:
    """The stored fingerprints in one permutation, sorted by the first 64 bits."""

    permuted: U64
    """Shape (n, lanes), the prefix first; each column contiguous."""
    row: NDArray[np.uint32]
    """Shape (n,): the row of each in the stored fingerprints."""

    @property
    def bytes(self) -> int:
        """Size in memory in bytes."""
        return self.permuted.nbytes + self.row.nbytes


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of probing one table, and its cost."""

    pairs: Pairs
    candidates: int
    read: int
    """Values read by the searches for prefixes."""


def build(stored: U64, layout: Layout, table: int) -> SortedTable:
    """Build a table: permute, and sort by the first 64 bits."""
    permuted = permute(stored, layout, table)
    order = np.argsort(permuted[:, 0], kind="stable")
    return SortedTable(np.asfortranarray(permuted[order]), order.astype(np.uint32))


def probe(
    held: SortedTable, layout: Layout, table: int, queries: U64, distance: int, find: Find = "binary"
) -> ProbeResult:
    """Probe one table: compare each query (n, lanes) with all stored fingerprints that share its prefix."""
    probed = permute(queries, layout, table)
    shift = key_shift(layout, table)
    low = probed[:, 0] >> shift << shift
    high = low | ((np.uint64(1) << shift) - np.uint64(1))
    first = held.permuted[:, 0]
    if find == "interpolation":
        starts, read = interpolate(first, low)
    else:
        starts, read = first.searchsorted(low), len(low) * len(first).bit_length()
    ends = first.searchsorted(high, side="right")
    pairs, candidates = compare(held, probed, starts, ends, distance)
    return ProbeResult(pairs, candidates, read)


def compare(held: SortedTable, queries: U64, starts: I64, ends: I64, distance: int) -> tuple[Pairs, int]:
    """Compare each permuted query with the entries [starts, ends) of a table. Returns the pairs within the
    distance, and the number of comparisons."""
    lengths = ends - starts
    total = np.cumsum(lengths)
    parts = []
    first = 0
    while first < len(queries):
        before = int(total[first - 1]) if first else 0
        last = max(first + 1, int(total.searchsorted(before + AT_ONCE, side="right")))
        place, row = expand(starts[first:last], lengths[first:last])
        row += first
        apart = distances(queries[row], held.permuted[place])
        near = np.flatnonzero(apart <= distance)
        parts.append(Pairs(row[near], held.row[place[near]].astype(np.int64), apart[near]))
        first = last
    return Pairs.merge(parts), int(total[-1]) if len(total) else 0


class SortedTables(Method):
    """T tables, each a sorted copy of all fingerprints. A query takes one search per table, then a few
    comparisons.

    `find` selects the search for prefixes, `probing` whether tables are probed in turn, by threads or by
    processes. NumPy releases the GIL in its long loops: on two cores, two threads take 0.55 to 0.62 of the
    time of one. Processes, which exchange queries and results, take 0.66 to 1.3. Close it if it has either.
    """

    summary: ClassVar = "sorted tables of permuted fingerprints"

    def __init__(
        self,
        stored: U64,
        width: int,
        distance: int,
        *,
        layout: Layout | None = None,
        find: Find = "binary",
        probing: Probing = "turn",
        workers: int | None = None,
    ) -> None:
        super().__init__(stored, width, distance)
        self.layout: Final = layout if layout is not None else self.default_layout(width, distance)
        self.layout.refuse_beyond(distance)
        if self.layout.width != width:
            raise SettingsError(f"layout: for {self.layout.width} bits, not {width}")
        self.find: Final = find
        self.read = 0
        """Values read by searches for prefixes so far."""
        self._tables = [build(self.stored, self.layout, table) for table in range(self.layout.tables)]
        workers = workers or os.cpu_count() or 1
        self._executor: Executor | None = None
        self._scratch: ScratchDirectory | None = None
        if probing == "threads":
            self._executor = ThreadPoolExecutor(workers, thread_name_prefix="probe")
        elif probing == "processes":
            self._scratch = ScratchDirectory("tables")
            folder = Path(self._scratch.name)
            for number, held in enumerate(self._tables):
                np.save(folder / f"permuted-{number}.npy", held.permuted)
                np.save(folder / f"row-{number}.npy", held.row)
            self._executor = ProcessPoolExecutor(
                workers,
                multiprocessing.get_context("spawn"),
                initializer=_open,
                initargs=(folder, self.layout, distance, find),
            )

    @classmethod
    def default_layout(cls, width: int, distance: int) -> Layout:
        """The paper's 4 tables for distance 3: one more block than bits that may differ."""
        return Layout.choose(distance + 1, 1, width)

    def _search(self, queries: U64) -> Pairs:
        parts = list(self._probed(queries))
        self.probes += len(queries) * self.layout.tables
        self.candidates += sum(part.candidates for part in parts)
        self.read += sum(part.read for part in parts)
        return Pairs.merge([part.pairs for part in parts])

    def _probed(self, queries: U64) -> Iterable[ProbeResult]:
        numbers = range(self.layout.tables)
        if self._scratch is not None and self._executor is not None:
            return self._executor.map(_probe_opened, numbers, [queries] * len(numbers))

        def one(table: int) -> ProbeResult:
            return probe(self._tables[table], self.layout, table, queries, self.distance, self.find)

        return map(one, numbers) if self._executor is None else self._executor.map(one, numbers)

    @property
    def bytes(self) -> int:
        return sum(table.bytes for table in self._tables)

    @classmethod
    def predicted(cls, stored: int, width: int, distance: int) -> Cost:
        return predicted(cls.default_layout(width, distance), stored)

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown()
        if self._scratch is not None:
            self._scratch.cleanup()


def predicted(layout: Layout, stored: int) -> Cost:
    """The expected cost over random fingerprints: a probe has n / 2**prefix candidates."""
    candidates = float((stored / 2.0**layout.prefix_bits).sum())
    return Cost(layout.tables, candidates, layout.tables * stored * (words_of(layout.width) * 8 + 4))


class FiveChooseTwo(SortedTables):
    """The paper's 10 tables for distance 3: prefixes of two of five blocks, 25 or 26 bits."""

    summary: ClassVar = "two of the blocks in front: 10 tables for distance 3"

    @classmethod
    def default_layout(cls, width: int, distance: int) -> Layout:
        return Layout.choose(distance + 2, 2, width)


class SixChooseThree(SortedTables):
    """The paper's 20 tables for distance 3: three of six blocks, 31 to 33 bits."""

    summary: ClassVar = "three of the blocks in front: 20 tables for distance 3"

    @classmethod
    def default_layout(cls, width: int, distance: int) -> Layout:
        return Layout.choose(distance + 3, 3, width)


class FourThenFour(SortedTables):
    """The paper's 16 tables for distance 3: one of four blocks, then one of four blocks of the rest."""

    summary: ClassVar = "a block, then a block of the rest, in front: 16 tables for distance 3"

    @classmethod
    def default_layout(cls, width: int, distance: int) -> Layout:
        blocks = max(distance + 1, 2)  # a single block would leave no bits for the second level
        return Layout.two_level(blocks, blocks, width)


class Interpolation(FiveChooseTwo):
    """The paper's 10 tables, with prefixes found by interpolation search."""

    summary: ClassVar = "10 tables, prefixes found by interpolation search"

    def __init__(self, stored: U64, width: int, distance: int) -> None:
        super().__init__(stored, width, distance, find="interpolation")


_opened: tuple[list[SortedTable], Layout, int, Find] | None = None
"""The memory-mapped tables in a process of `probing="processes"`."""


def _open(folder: Path, layout: Layout, distance: int, find: Find) -> None:
    global _opened  # the initializer of a process
    tables = [
        SortedTable(
            np.load(folder / f"permuted-{number}.npy", mmap_mode="r"),
            np.load(folder / f"row-{number}.npy", mmap_mode="r"),
        )
        for number in range(layout.tables)
    ]
    _opened = tables, layout, distance, find


def _probe_opened(table: int, queries: U64) -> ProbeResult:
    assert _opened is not None  # the initializer ran
    tables, layout, distance, find = _opened
    return probe(tables[table], layout, table, queries, distance, find)

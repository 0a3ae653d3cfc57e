"""Builds the files of a run for RocksDB to ingest, from a generation or from the runs that it replaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import numpy as np
from rocksdict import RdictIter, SstFileWriter

from stream.tables.arrays import I64, U64
from stream.tables.design import TABLE_BITS, Design
from stream.tables.runs.filters import PIECE_BLOCKS, blocks_of, empty_filter, mark
from stream.tables.runs.run import ENTRY_BYTES, FILTER, TABLE_PLACE, Run
from stream.tables.store.anchors import Bitmap
from stream.tables.store.rocks import RUNS, Store, opened_to_read, sst_writer

PAUSE_KEYS: Final = 64
"""Keys written between two calls of `pause`."""
CACHED_BYTES: Final = 1 << 28
"""Largest file that is loaded into the page cache. A larger one would evict others."""
MERGED_AT_ONCE: Final = 1 << 20
"""Entries merged at a time, in some 100 MiB, however large the run is."""
_LOW: Final = np.uint64(0xFFFF_FFFF)
_PLACE: Final = np.uint64(32)


class Entries(NamedTuple):
    """Entries of a table of a run, sorted by prefix, then number: all of some groups."""

    prefixes: U64
    numbers: I64
    """Relative to the run's first anchor."""
    prints: U64


Slices = Callable[[int], Iterator[Entries]]


class Content(Protocol):
    """What a run is made of."""

    @property
    def run(self) -> Run: ...

    @property
    def prefix_bits(self) -> I64:
        """(T,): those of its tables."""

    @property
    def most_entries(self) -> int:
        """A bound of the number of entries."""

    def opened(self, store: Store | None) -> AbstractContextManager[Slices]:
        """What gives the entries of a table, in order, in slices of whole groups. `store` is the one that has
        the parts, if it is open in this process."""


class GenerationContent(NamedTuple):
    """The last n anchors of a generation; those before are gone."""

    run: Run
    design: Design
    prefix_bits: I64
    rows: U64
    """(n, W + 1)"""
    masks: U64
    """(n,): the tables that each is not in; of a dead one all."""
    reserves: tuple[U64, U64]
    """The rows (k,), ascending, of those in reserves, and the keys of these (k,)."""

    @property
    def most_entries(self) -> int:
        """A bound of the number of entries."""
        tables = np.uint64((1 << self.design.tables) - 1)
        kept_out = int(np.bitwise_count(self.masks & tables).sum())
        return len(self.rows) * self.design.tables - kept_out + len(self.reserves[0])

    @contextmanager
    def opened(self, _: Store | None) -> Iterator[Slices]:
        """What gives the entries of a table, in one slice."""
        yield self._slices

    def _slices(self, table: int) -> Iterator[Entries]:
        if table < self.design.tables:
            members = np.flatnonzero(self.masks >> np.uint64(table) & np.uint64(1) == 0)
            prefixes = self.design.prefixes(self.rows[members], table)
        else:
            members, prefixes = self.reserves[0].astype(np.int64), self.reserves[1] >> np.uint64(TABLE_BITS)
        order = np.argsort(prefixes, kind="stable")
        members = members[order]
        gone = self.run.anchors - len(self.rows)
        yield Entries(prefixes[order], members + gone, self.rows[members, -1])


class MergedContent(NamedTuple):
    """The entries of the runs that a run replaces."""

    run: Run
    prefix_bits: I64
    dead: Bitmap
    """Those of its anchors that are dead or gone."""
    directory: Path
    """The directory of the store that has them."""
    entries: int
    """How many they have."""

    @property
    def most_entries(self) -> int:
        """A bound of the number of entries."""
        return self.entries

    @contextmanager
    def opened(self, store: Store | None) -> Iterator[Slices]:
        """What gives the entries of a table, as many at once as `MERGED_AT_ONCE` allows if prefixes are
        uniformly distributed."""
        if store is not None:
            yield partial(self._slices, lambda: store.iterator(RUNS))
        else:
            with opened_to_read(self.directory, RUNS) as family:
                yield partial(self._slices, family.iter)

    def _slices(self, iterator: Callable[[], RdictIter], table: int) -> Iterator[Entries]:
        parts, bits = self.run.parts, int(self.prefix_bits[table])
        low = int(parts[0].low_bits(self.prefix_bits)[table])
        slices = min(bits - low, (self.entries // len(self.prefix_bits) // MERGED_AT_ONCE).bit_length())
        readers = [_PartReader(iterator(), part, table, low) for part in parts]
        for number in range(1, (1 << slices) + 1):
            read = [reader.before(number << bits - low - slices) for reader in readers]
            yield self._sorted([each for each in read if each is not None])

    def _sorted(self, read: list[tuple[Run, U64, U64]]) -> Entries:
        parts = [
            Entries(prefixes, (entries[:, 1] & _LOW).astype(np.int64) + part.first, entries[:, 0])
            for part, prefixes, entries in read
        ]
        none = Entries(np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.uint64))
        prefixes, numbers, prints = (np.concatenate(each) for each in zip(none, *parts, strict=True))
        left = ~self.dead.has(numbers)
        # Parts are in the order of numbers, and each is sorted: equal prefixes stay in order.
        order = np.flatnonzero(left)[np.argsort(prefixes[left], kind="stable")]
        return Entries(prefixes[order], numbers[order] - self.run.first, prints[order])


class _PartReader:
    """Reads the groups of a table of a run, in order."""

    def __init__(self, iterator: RdictIter, part: Run, table: int, low: int) -> None:
        self._part, self._low = part, np.uint64(low)
        self._iterator = iterator
        self._iterator.seek(part.key(table))
        self._end = part.key(table + 1)

    def before(self, group: int) -> tuple[Run, U64, U64] | None:
        """The run, and prefixes (n,) and entries (n, 2) of the next groups, as far as they come before this
        one; None if there are none. Raises what reading raises."""
        groups, values, each = list[bytes](), list[bytes](), self._iterator
        while each.valid() and (key := each.key()) < self._end and int.from_bytes(key[-4:], "big") < group:
            groups.append(key[-4:])
            values.append(each.value())
            each.next()
        each.status()
        if not groups:
            return None
        entries = np.frombuffer(b"".join(values), "<u8").astype(np.uint64, copy=False).reshape(-1, 2)
        high = np.frombuffer(b"".join(groups), ">u4").astype(np.uint64)
        high = np.repeat(high, [len(value) // ENTRY_BYTES for value in values])
        return self._part, high << self._low | entries[:, 1] >> _PLACE, entries


class Built(NamedTuple):
    """What is known of a run that was built."""

    entries: int
    blocks: int
    """Those of its filter."""


def build(
    content: Content,
    store: Store | None,
    folder: Path,
    memory: int,
    between: Callable[[], None],
    pause: Callable[[], None],
) -> Built:
    """Write the files of a run, whose filter takes at most `memory` bytes. Files depend only on the anchors,
    and on those that are dead or gone.

    `between` is called before each table, `pause` while one is being written. An exception from either ends
    the build.
    """
    run, low_bits = content.run, content.run.low_bits(content.prefix_bits)
    blocks = blocks_of(content.most_entries, memory)
    present, count = empty_filter(blocks), 0
    with content.opened(store) as slices:
        for table in range(len(content.prefix_bits)):
            between()
            file: SstFileWriter | None = None
            path, low = folder / f"{table:02d}.sst", np.uint64(low_bits[table])
            for entries in slices(table):
                if not len(entries.prefixes):  # RocksDB does not allow empty files
                    continue
                file = file or _opened(path)
                mark(entries.prefixes, table, present)
                count += len(entries.prefixes)
                _write(file, run, table, entries, low, pause)
            if file is not None:
                file.finish()
                _load_into_page_cache(path)
    file = _opened(folder / f"{FILTER}.sst")
    for piece, start in enumerate(range(0, blocks, PIECE_BLOCKS)):
        file[run.key(FILTER, piece)] = (
            present[start : start + PIECE_BLOCKS].astype("<u8", copy=False).tobytes()
        )
    file.finish()
    return Built(count, blocks)


def files_of(folder: Path) -> list[Path]:
    """The files that `build` wrote."""
    return sorted(folder.glob("*.sst"))


def _opened(path: Path) -> SstFileWriter:
    file = sst_writer(RUNS)
    file.open(str(path))
    return file


def _load_into_page_cache(path: Path) -> None:
    """Load a file into the page cache, unless it is large. RocksDB drops files from the cache after writing
    them, so that random probes would wait for the disk, once for each page of the file."""
    if path.stat().st_size <= CACHED_BYTES:
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


def _write(
    file: SstFileWriter, run: Run, table: int, entries: Entries, low: np.uint64, pause: Callable[[], None]
) -> None:
    prefixes = entries.prefixes
    content = np.empty((len(prefixes), 2), "<u8")
    content[:, 0] = entries.prints
    content[:, 1] = entries.numbers.astype(np.uint64)
    content[:, 1] |= (prefixes & ((np.uint64(1) << low) - np.uint64(1))) << _PLACE
    groups = prefixes >> low
    starts = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))
    keys = run.keys(groups[starts] | np.uint64(table << TABLE_PLACE))
    written = content.tobytes()
    ends = [*(starts[1:] * ENTRY_BYTES).tolist(), len(written)]
    start = 0
    for index, (key, end) in enumerate(zip(keys, ends, strict=True)):
        file[key] = written[start:end]
        start = end
        if index % PAUSE_KEYS == 0:
            pause()

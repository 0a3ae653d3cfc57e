"""Builds the files of a run: the entries of its anchors, one sorted file per table, for RocksDB to ingest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rocksdict import SstFileWriter

from stream.tables.arrays import U64
from stream.tables.cold.runs import ENTRY_BYTES, Run, group_keys
from stream.tables.design import Design
from stream.tables.store.anchors import Skips
from stream.tables.store.rocks import table_family

PAUSE_KEYS: Final = 64
"""Keys written between two calls of `pause`."""
CACHED_BYTES: Final = 1 << 28
"""Largest file that is loaded into the page cache. A larger one would evict others."""
SORTED_AT_ONCE: Final = 1 << 22
"""Anchors sorted at a time, in some 200 MiB, however large the run is."""


def table_file(folder: Path, table: int) -> Path:
    """The path of a table's file. `build_tables` writes no file for a table that no anchor entered."""
    return folder / f"{table:02d}.sst"


class RunAnchors(NamedTuple):
    """The last n anchors of a run: their rows (n, W + 1), and those that skipped full buckets. Those before
    are gone."""

    run: Run
    rows: U64
    skips: Skips

    @property
    def gone(self) -> int:
        """Number of anchors of the run that have no row."""
        return self.run.anchors - len(self.rows)


def build_tables(
    writer: Callable[[str], SstFileWriter],
    design: Design,
    anchors: RunAnchors,
    folder: Path,
    *,
    between: Callable[[], None] | None = None,
    pause: Callable[[], None] | None = None,
) -> None:
    """Write the files of a run. Their content depends only on its anchors, and on those that are gone.

    `writer` makes a writer for a column family. `between` is called before each table, `pause` while one is
    being written. An exception from either ends the build.
    """
    low_bits = anchors.run.low_bits(design)
    for table in range(design.tables):
        if between is not None:
            between()
        low, path = np.uint64(low_bits[table]), table_file(folder, table)
        file: SstFileWriter | None = None
        for prefixes, members in _sorted_slices(design, anchors, table, int(low)):
            if not len(members):  # RocksDB does not allow empty files
                continue
            if file is None:
                file = writer(table_family(design.families[table]))
                file.open(str(path))
            _write(file, anchors, prefixes, members, low, pause)
        if file is not None:
            file.finish()
            _load_into_page_cache(path)


def _load_into_page_cache(path: Path) -> None:
    """Load a file into the page cache, unless it is large. RocksDB drops files from the cache after writing
    them, so that random probes would wait for the disk, once for each page of the file."""
    if path.stat().st_size <= CACHED_BYTES:
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


def _sorted_slices(
    design: Design, anchors: RunAnchors, table: int, low: int
) -> Iterator[tuple[U64, NDArray[np.int64]]]:
    """Yield prefixes and indexes in the run of the anchors that entered a table, sorted by both, in slices of
    whole groups."""
    (run, rows, skips), gone = anchors, anchors.gone
    groups = 1 << int(design.prefix_bits[table]) - low
    slices = min(groups, -(-len(rows) // SORTED_AT_ONCE))
    edges = [groups * number // slices << low for number in range(slices + 1)]
    for begin, end in pairwise(edges):
        parts: list[tuple[U64, NDArray[np.int64]]] = []
        for first in range(0, len(rows), SORTED_AT_ONCE):
            prefixes = design.prefixes(rows[first : first + SORTED_AT_ONCE], table)
            chosen = (prefixes >= np.uint64(begin)) & (prefixes < np.uint64(end))
            start = run.first + gone + first
            masks = skips.masks_of(start, start + len(prefixes))
            if masks is not None:
                chosen &= masks >> np.uint64(table) & np.uint64(1) == 0
            members = np.flatnonzero(chosen)
            parts.append((prefixes[members], members + (gone + first)))
        prefixes, members = (np.concatenate(part) for part in zip(*parts, strict=True))
        place = np.uint64(run.anchors.bit_length())
        if int(design.prefix_bits[table]) + int(place) <= 64:  # packed into one integer: ten times as fast
            both = np.sort(prefixes << place | members.astype(np.uint64))
            yield both >> place, (both & np.uint64((1 << int(place)) - 1)).astype(np.int64)
        else:
            order = np.argsort(prefixes, kind="stable")
            yield prefixes[order], members[order]


def _write(
    file: SstFileWriter,
    anchors: RunAnchors,
    prefixes: U64,
    members: NDArray[np.int64],
    low: np.uint64,
    pause: Callable[[], None] | None,
) -> None:
    run, rows, _ = anchors
    entries = np.empty((len(members), 2), "<u8")
    entries[:, 0] = rows[members - anchors.gone, -1]
    entries[:, 1] = members.astype(np.uint64)
    entries[:, 1] |= (prefixes & ((np.uint64(1) << low) - np.uint64(1))) << np.uint64(32)
    groups = prefixes >> low
    starts = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))
    keys = group_keys(groups[starts] | np.uint64(run.key))
    content = entries.tobytes()
    ends = [*(starts[1:] * ENTRY_BYTES).tolist(), len(content)]
    start = 0
    for index, (key, end) in enumerate(zip(keys, ends, strict=True)):
        file[key] = content[start:end]
        start = end
        if pause is not None and index % PAUSE_KEYS == 0:
            pause()

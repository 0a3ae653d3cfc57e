"""A generation's anchors -> one sorted file a table, for RocksDB to ingest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from rocksdict import SstFileWriter

from stream.tables.anchors import entered
from stream.tables.cold import bucket_keys
from stream.tables.design import U64, Design
from stream.tables.rocks import table_family

PAUSE_KEYS: Final = 64
"""Keys written between two calls of `pause`."""


def table_file(folder: Path, table: int) -> Path:
    """Where `build_tables` puts a table's file; not there when no anchor entered the table."""
    return folder / f"{table:02d}.sst"


def build_tables(
    writer: Callable[[str], SstFileWriter],
    design: Design,
    generation: int,
    first: int,
    rows: U64,
    masks: U64 | None,
    folder: Path,
    *,
    between: Callable[[], None] | None = None,
    pause: Callable[[], None] | None = None,
) -> None:
    """Write the files of the anchors `first`, `first` + 1, ...; their content depends on these alone.

    `writer` makes a writer for a column family. `between` is called before each table, `pause` while one
    is written; what they raise ends the building.
    """
    for table in range(design.tables):
        if between is not None:
            between()
        members = entered(masks, table)
        numbers = np.arange(first, first + len(rows), dtype=np.uint64)
        kept = rows
        if members is not None:
            kept, numbers = rows[members], numbers[members]
        if len(kept):
            path = table_file(folder, table)
            _write(writer(table_family(table)), design, table, generation, kept, numbers, path, pause)


def _write(
    writer: SstFileWriter,
    design: Design,
    table: int,
    generation: int,
    rows: U64,
    numbers: U64,
    path: Path,
    pause: Callable[[], None] | None,
) -> None:
    prefixes = design.prefixes(rows[:, 0], table)
    order = np.argsort(prefixes, kind="stable")  # stable: entries of a bucket stay in order of number
    prefixes = prefixes[order]
    entries = np.empty((len(rows), 2), "<u8")
    entries[:, 0] = rows[order, 1]
    entries[:, 1] = numbers[order]
    starts = np.flatnonzero(np.concatenate([[True], prefixes[1:] != prefixes[:-1]]))
    keys = bucket_keys(
        prefixes[starts], np.full(len(starts), generation, np.uint16), int(design.prefix_bits[table])
    )
    content = entries.tobytes()
    ends = [*(starts[1:] * 16).tolist(), len(content)]
    writer.open(str(path))
    start = 0
    for index, (key, end) in enumerate(zip(keys, ends, strict=True)):
        writer[key] = content[start:end]
        start = end
        if pause is not None and index % PAUSE_KEYS == 0:
            pause()
    writer.finish()

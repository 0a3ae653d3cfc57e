"""Freezing: a generation of anchors becomes one sorted file a table, built beside the judge's work."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import Final

import numpy as np

from stream.failpoints import reach
from stream.tables.anchors import entered
from stream.tables.cold import bucket_keys
from stream.tables.design import U64, Design
from stream.tables.rocks import Store, table_family

FOLDER: Final = "freeze"
YIELD_KEYS: Final = 64
"""Keys written between offers of the GIL. While a generation is built, searches take 1.9 times as long
with 64 and 2.9 times without any; building takes twice as long (measured on two busy cores)."""


def build_table(
    store: Store,
    design: Design,
    table: int,
    generation: int,
    first: int,
    rows: U64,
    masks: U64 | None,
    path: Path,
) -> bool:
    """Write one table's file of a generation; False when no anchor entered this table."""
    members = entered(masks, table)
    numbers = np.arange(first, first + len(rows), dtype=np.uint64)
    if members is not None:
        rows, numbers = rows[members], numbers[members]
    if not len(rows):
        return False
    prefixes = design.prefixes(rows, table)
    order = np.argsort(prefixes, kind="stable")  # stable: entries of a bucket stay in order of number
    prefixes = prefixes[order]
    entries = np.empty((len(rows), 2), "<u8")
    entries[:, 0] = rows[order]
    entries[:, 1] = numbers[order]
    starts = np.flatnonzero(np.concatenate([[True], prefixes[1:] != prefixes[:-1]]))
    keys = bucket_keys(
        prefixes[starts], np.full(len(starts), generation, np.uint16), int(design.prefix_bits[table])
    )
    content = entries.tobytes()
    ends = [*(starts[1:] * 16).tolist(), len(content)]
    writer = store.sst_writer(table_family(table))
    writer.open(str(path))
    start = 0
    for index, (key, end) in enumerate(zip(keys, ends, strict=True)):
        writer[key] = content[start:end]
        start = end
        if index % YIELD_KEYS == 0:
            time.sleep(0)
    writer.finish()
    return True


class Freezing:
    """One generation on its way into RocksDB. Its content depends on its anchors alone."""

    def __init__(
        self, store: Store, design: Design, generation: int, first: int, rows: U64, masks: U64 | None
    ) -> None:
        self.generation: Final = generation
        self._store = store
        self._files: dict[int, Path] = {}
        self._error: BaseException | None = None
        self._cancelled = False
        folder = store.path / FOLDER
        folder.mkdir(exist_ok=True)

        def build() -> None:
            try:
                for table in range(design.tables):
                    if self._cancelled:
                        return
                    reach("freeze.build")
                    path = folder / f"{generation:05d}-{table:02d}.sst"
                    if build_table(store, design, table, generation, first, rows, masks, path):
                        self._files[table] = path
            except BaseException as error:  # raised in the thread that waits
                self._error = error

        self._thread = threading.Thread(target=build, name=f"freeze-{generation}", daemon=True)
        self._thread.start()

    @property
    def built(self) -> bool:
        """Whether the files are ready (or building failed)."""
        return not self._thread.is_alive()

    def finish(self) -> None:
        """Wait for the files and ingest them. Raises what building raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        for table, path in self._files.items():
            reach("freeze.ingest")
            self._store.ingest(table_family(table), path)
        reach("freeze.meta")

    def discard(self) -> None:
        """Stop building; the generation stays unfrozen."""
        self._cancelled = True
        self._thread.join()


def clean(path: Path) -> None:
    """Remove files of freezes that a crash interrupted."""
    shutil.rmtree(path / FOLDER, ignore_errors=True)

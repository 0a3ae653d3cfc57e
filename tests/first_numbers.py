"""States whose numbers begin just below 2**32, as if four thousand million anchors had been there."""

from __future__ import annotations

from typing import Final

import numpy as np

from stream.judge.state.page_log import GROUP
from stream.tables.cold.runs import LEVELS, MERGED, Run
from stream.tables.compaction import RUN
from stream.tables.reserves.keys import PAIRS
from stream.tables.store.anchors import CHUNK, FIRST, FIRST_ENTRY
from stream.tables.store.rocks import ANCHORS, DEFAULT, DUPLICATES, Store

LATE: Final = (1 << 32) - CHUNK
"""A first number of anchors. It has 33 bits after a few hundred of them."""
LATE_ENTRY: Final = (1 << 32) - 77
"""A first number of entries in reserves."""
LATE_DUPLICATE: Final = (1 << 32) - 2 * GROUP
"""A first number of duplicates."""


def begin_at(store: Store, first: int, first_entry: int = 0) -> None:
    """Let the tables of an empty store begin at these numbers, as if a run of level 0 had ended there."""
    batch = store.batch()
    for family, end in ((0, first), (PAIRS, first_entry)):
        if end:
            last = Run(0, MERGED**LEVELS - 1, end - 1, 1)
            key = RUN + bytes([family, last.level]) + last.number.to_bytes(3, "big")
            batch.put(DEFAULT, key, last.record)
    batch.put(DEFAULT, FIRST, first.to_bytes(8, "little"))
    batch.put(DEFAULT, FIRST_ENTRY, first_entry.to_bytes(8, "little"))
    store.write(batch)


def begin_late(store: Store) -> None:
    """Let an empty state begin just below 2**32, tables and page logs."""
    begin_at(store, LATE, LATE_ENTRY)
    batch = store.batch()
    for family, first in ((ANCHORS, LATE), (DUPLICATES, LATE_DUPLICATE)):
        batch.put(DEFAULT, f"pages/{family}".encode(), np.array([first, first], "<u8").tobytes())
    store.write(batch)

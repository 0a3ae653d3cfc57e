"""States whose numbers begin just below 2**32, as if four thousand million anchors had been there."""

from __future__ import annotations

from typing import Final

import numpy as np

from stream.judge.state.page_log import GROUP
from stream.tables.store.anchors import CHUNK, FIRST
from stream.tables.store.rocks import ANCHORS, DEFAULT, DUPLICATES, Store

LATE: Final = (1 << 32) - CHUNK
"""A first number of anchors. It has 33 bits after a few hundred of them."""
LATE_DUPLICATE: Final = (1 << 32) - 2 * GROUP
"""A first number of duplicates."""


def begin_at(store: Store, first: int) -> None:
    """Let the tables of an empty store begin at this number."""
    batch = store.batch()
    batch.put(DEFAULT, FIRST, first.to_bytes(8, "little"))
    store.write(batch)


def begin_late(store: Store) -> None:
    """Let an empty state begin just below 2**32, tables and page logs."""
    begin_at(store, LATE)
    batch = store.batch()
    for family, first in ((ANCHORS, LATE), (DUPLICATES, LATE_DUPLICATE)):
        batch.put(DEFAULT, f"pages/{family}".encode(), np.array([first, first], "<u8").tobytes())
    store.write(batch)

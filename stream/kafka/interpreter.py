"""How Python runs a process that turns large batches over in several threads."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SWITCH_SECONDS: Final = 0.0002
"""How long a thread may keep the GIL while others want it. Compiled loops and reads of RocksDB need it back
for microseconds, and would wait 5 ms, Python's default, for a thread that makes the records of a batch."""
COLLECT_AFTER: Final = 50_000
"""New containers between two searches for cycles. With Python's default of 700, each batch was looked through
a dozen times; nothing of it is in a cycle."""


@contextmanager
def made_for_batches() -> Iterator[None]:
    """Settings of the whole process, for as long as the context lasts."""
    switch, collect = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(COLLECT_AFTER, *collect[1:])
    try:
        yield
    finally:
        sys.setswitchinterval(switch)
        gc.set_threshold(*collect)

"""Tunes the Python runtime and the allocator for processes that handle large batches in several threads."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SWITCH_SECONDS: Final = 0.0002
"""GIL switch interval. Compiled loops and reads of RocksDB need the GIL back only for microseconds. With
Python's default of 5 ms they would wait that long for a thread that encodes a batch."""
COLLECT_AFTER: Final = 50_000
"""New containers between garbage collections. With Python's default of 700, each batch was scanned a dozen
times, although batches contain no cycles."""
ARENAS: Final = 2
"""Maximum number of malloc arenas; glibc's default is eight per core. Memory of a batch passes between
threads, and each arena keeps what was freed in it. At 6 million anchors, the default took 280 MiB more and
was not faster."""
_M_ARENA_MAX: Final = -8  # of <malloc.h>


@contextmanager
def batch_process_tuning() -> Iterator[None]:
    """Tune the process while entered. The limit on arenas stays in effect afterwards."""
    switch, collect = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(COLLECT_AFTER, *collect[1:])
    _limit_arenas()
    try:
        yield
    finally:
        sys.setswitchinterval(switch)
        gc.set_threshold(*collect)


def _limit_arenas() -> None:
    """Limit the malloc arenas, unless the environment sets a limit. Other allocators lack or ignore the
    call."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    chosen = "MALLOC_ARENA_MAX" in os.environ or "arena_max" in os.environ.get("GLIBC_TUNABLES", "")
    if set_option is not None and not chosen:
        set_option(_M_ARENA_MAX, ARENAS)

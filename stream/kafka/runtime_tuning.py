"""How Python and the allocator run a process that turns large batches over in several threads."""

from __future__ import annotations

import ctypes
import gc
import os
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
ARENAS: Final = 2
"""Heaps that threads share, where glibc would give them eight a core. A batch's memory goes from thread to
thread, and each heap keeps what was freed in it: at 6 million anchors 280 MiB more, and no faster."""
_M_ARENA_MAX: Final = -8  # of <malloc.h>


@contextmanager
def made_for_batches() -> Iterator[None]:
    """Settings of the whole process, for as long as the context lasts; the limit on heaps outlasts it."""
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
    """What a user asks for in the environment stands. Other allocators have no such call, or ignore it."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    asked = "MALLOC_ARENA_MAX" in os.environ or "arena_max" in os.environ.get("GLIBC_TUNABLES", "")
    if set_option is not None and not asked:
        set_option(_M_ARENA_MAX, ARENAS)

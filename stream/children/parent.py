"""Makes a child process end when its parent does, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def end_with_parent() -> None:
    """Make this process end with the thread that started it.

    On Linux the kernel kills it, which works even while a library holds the GIL and waits for a disk.
    Elsewhere, or if that thread has already ended, the end of standard input does: a pipe that the parent
    holds open and never writes to.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_wait_and_end, daemon=True).start()


def _wait_and_end() -> None:
    os.read(0, 1)
    os._exit(1)

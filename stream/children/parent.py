"""How a child process ends with its parent, whatever ended that."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def end_with_parent() -> None:
    """End this process with the thread that started it: by the kernel's hand where it can, as a library may
    keep the GIL for as long as a disk does not answer.

    Elsewhere, and where that thread has ended already, by a pipe: standard input, which the parent holds open
    and never writes to.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_wait_and_end, daemon=True).start()


def _wait_and_end() -> None:
    os.read(0, 1)
    os._exit(1)

"""Failpoints: named places where a test can kill this process, to prove recovery from a crash there.

`NEARDUP_FAILPOINT=name` or `NEARDUP_FAILPOINT=name:n` ends the process with SIGKILL when it reaches `name`
for the n-th time (default: first). Without the variable, `reach` does nothing.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Final

VARIABLE: Final = "NEARDUP_FAILPOINT"


def reach(place: str) -> None:
    """Mark a failpoint: kills the process if a test chose this name, otherwise does nothing."""
    _armed(place)


def arm(setting: str) -> None:
    """Choose a failpoint as the variable does, in a process that was forked from one that had imported this
    module. An empty setting chooses none."""
    global _armed
    _armed = _killer(setting) if setting else _never


def _killer(setting: str) -> Callable[[str], None]:
    """Return a `reach` that counts one name. It is thread-safe, because freezing runs in the background."""
    name, _, turn = setting.partition(":")
    left = int(turn or 1)
    lock = threading.Lock()

    def reach(place: str) -> None:
        nonlocal left
        if place != name:
            return
        with lock:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return reach


def _never(place: str) -> None:
    pass


_armed: Callable[[str], None]
arm(os.environ.get(VARIABLE, ""))

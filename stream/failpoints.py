"""Places where a test may kill this process, to prove that recovery from exactly there works.

`NEARDUP_FAILPOINT=name` or `NEARDUP_FAILPOINT=name:n` ends the process with SIGKILL when `name` is reached
for the n-th time. Unset, `reach` is an empty function.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Final

VARIABLE: Final = "NEARDUP_FAILPOINT"


def _killer(setting: str) -> Callable[[str], None]:
    """A `reach` that counts one name; thread-safe, because freezing runs in the background."""
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


reach: Callable[[str], None] = _killer(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else _never
"""Say that the place of this name is reached; a test may have asked to be killed there."""

"""How long something has lasted, as a metric."""

from __future__ import annotations

import time
from collections.abc import Callable


class Elapsed:
    """Seconds for which a condition has held, as seen when called; 0 while it does not hold."""

    def __init__(self, holds: Callable[[], bool]) -> None:
        self._holds = holds
        self._since: float | None = None
        self()

    def __call__(self) -> float:
        """Return the seconds since the first of the calls in a row at which the condition held."""
        if not self._holds():
            self._since = None
            return 0.0
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        return now - self._since

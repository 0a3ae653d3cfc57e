"""Liveness and readiness of a role."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

LIVE_SECONDS: Final = 60.0
"""A loop without an iteration for this long is considered hung. Regular iterations take some seconds at most,
with spam as the worst case."""
ANSWER_SECONDS: Final = 2.0
"""Time-out of a readiness check."""

Check = Callable[[], bool | Awaitable[object]]
"""A readiness check: returns a bool, or an awaitable that raises if the check fails."""


class Health:
    """Tracks the health of a role, which reports its progress here."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turned = clock()
        self.started: Final = time.time()
        """When the role was started, in seconds since the epoch."""
        self._excuses: list[str] = []
        self.checks: dict[str, Check] = {}
        """Name -> condition for the role to be ready."""
        self.trouble: str | None = None
        """A problem that needs human action, reported with the readiness."""
        self.awaited: str | None = None
        """What another program has to end before the role goes on, which makes it not ready."""

    def turn(self) -> None:
        """Note an iteration of the role's loop."""
        self._turned = self._clock()

    @contextmanager
    def excuse(self, why: str) -> Iterator[None]:
        """Context manager that suspends the liveness check during a long operation, such as opening a large
        state."""
        self._excuses.append(why)
        try:
            yield
        finally:
            self._excuses.remove(why)
            self.turn()

    def live(self) -> tuple[bool, dict[str, object]]:
        """Return whether the role is alive, and details for the response."""
        seconds = self._clock() - self._turned
        if (why := next(reversed(self._excuses), None)) is not None:  # a thread may remove it meanwhile
            return True, {"excused": why}
        return seconds <= LIVE_SECONDS, {"turned_seconds_ago": round(seconds, 3)}

    async def ready(self) -> tuple[bool, dict[str, object]]:
        """Return whether all checks pass and nothing is awaited, and the result of each check. A role without
        checks is not ready."""
        names = list(self.checks)
        answers = await asyncio.gather(*(_answer(self.checks[name]) for name in names))
        is_ready = bool(names) and all(answers) and self.awaited is None
        return is_ready, dict(zip(names, answers, strict=True))


async def _answer(check: Check) -> bool:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            result = check()
            if isinstance(result, bool):
                return result
            await result
            return True
    except Exception:
        return False  # any failure means not ready

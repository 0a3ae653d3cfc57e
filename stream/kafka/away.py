"""Brokers that are away: they are waited for without end, and that is said, less and less often."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import structlog

from stream.errors import BrokerError, SecurityError

FIRST_SECONDS: Final = 10.0
LONGEST_SECONDS: Final = 600.0
PAUSE_SECONDS: Final = 0.5
"""Between two questions."""
T = TypeVar("T")

log = structlog.get_logger(__name__)


class Absence:
    """Something that may not answer: its absence is told at growing intervals, and its end once."""

    def __init__(self, wanted: str) -> None:
        """`wanted` names it in the log."""
        self._wanted = wanted
        self._since: float | None = None
        self._next = 0.0
        self._interval = FIRST_SECONDS

    @property
    def lasts(self) -> bool:
        """Whether it did not answer when it was last asked."""
        return self._since is not None

    def met(self, error: object) -> None:
        """It did not answer."""
        now = time.monotonic()
        if self._since is None:
            self._since = self._next = now
            self._interval = FIRST_SECONDS
        if now >= self._next:
            away = round(now - self._since)
            log.warning("waiting", wanted=self._wanted, error=str(error) or repr(error), away_seconds=away)
            self._next = now + self._interval
            self._interval = min(2 * self._interval, LONGEST_SECONDS)

    def over(self) -> None:
        """It answers."""
        if self._since is not None:
            log.info("answers_again", wanted=self._wanted, away_seconds=round(time.monotonic() - self._since))
            self._since = None


async def answered(
    wanted: str, ask: Callable[[], Awaitable[T]], turned: Callable[[], None] = lambda: None
) -> T:
    """What `ask` gives; asked again for as long as it raises BrokerError. `turned` is called each time.

    Raises SecurityError, which is an answer.
    """
    absence = Absence(wanted)
    while True:
        turned()
        try:
            answer = await ask()
        except SecurityError:
            raise
        except BrokerError as error:
            absence.met(error)
        else:
            absence.over()
            return answer
        await asyncio.sleep(PAUSE_SECONDS)

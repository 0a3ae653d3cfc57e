"""Waits for unreachable brokers, and logs it once a minute; without a time limit unless one is set."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

import structlog

from stream.errors import BrokerError, SecurityError

LOG_SECONDS: Final = 60.0
"""Interval of log lines about an outage."""
PAUSE_SECONDS: Final = 0.5
"""Pause between retries."""
T = TypeVar("T")

log = structlog.get_logger(__name__)


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Limit each wait for brokers while entered: after so many seconds without success, BrokerError says what
    was waited for."""
    token = _PATIENCE.set(seconds)
    try:
        yield
    finally:
        _PATIENCE.reset(token)


def patience_limit() -> float | None:
    """Return the limit of `patience` in seconds; None for no limit."""
    return _PATIENCE.get()


_PATIENCE: Final = ContextVar[float | None]("patience", default=None)


class Outage:
    """Tracks whether something is unreachable. Logs that once a minute, and its end once."""

    def __init__(self, wanted: str) -> None:
        """`wanted` is its name in the log."""
        self._wanted = wanted
        self._since: float | None = None
        self._next = 0.0

    @property
    def is_ongoing(self) -> bool:
        """Whether the last attempt failed."""
        return self._since is not None

    def note(self, error: object) -> None:
        """Record a failed attempt. Raises BrokerError if `patience` is at its end."""
        now = time.monotonic()
        if self._since is None:
            self._since = self._next = now
        if now >= self._next:
            away = round(now - self._since)
            log.warning("waiting", wanted=self._wanted, error=str(error) or repr(error), away_seconds=away)
            self._next = now + LOG_SECONDS
        limit = _PATIENCE.get()
        if limit is not None and now - self._since >= limit:
            raise BrokerError(f"waited {limit:g} s for {self._wanted}: {error}")

    def end(self) -> None:
        """Record a successful attempt."""
        if self._since is not None:
            log.info("answers_again", wanted=self._wanted, away_seconds=round(time.monotonic() - self._since))
            self._since = None


async def retry_until_answered(
    wanted: str, ask: Callable[[], Awaitable[T]], on_iteration: Callable[[], None] = lambda: None
) -> T:
    """Return the result of `ask`, which is called again while it raises BrokerError. `wanted` is what the log
    says is waited for. `on_iteration` is called before each attempt.

    Raises SecurityError, which is an answer of the broker, and BrokerError as `Outage.note` does.
    """
    outage = Outage(wanted)
    while True:
        on_iteration()
        try:
            answer = await ask()
        except SecurityError:
            raise
        except BrokerError as error:
            outage.note(error)
        else:
            outage.end()
            return answer
        await asyncio.sleep(PAUSE_SECONDS)

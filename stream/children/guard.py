"""Time limits on a page, enforced within the process that reads it."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Final, ParamSpec, TypeVar

from stream.children.deadline import host_of, seconds
from stream.children.position import Position
from stream.fingerprint.row import Row, failed_row
from stream.pages.outside.errors import FetchNeededError

STORE_SECONDS: Final = 60.0
"""Longest read from a store. A process that waits longer exits, and its replacement tries again."""

OUT_OF_MEMORY: Final = 77
"""Exit code after a MemoryError, since the state of the process can no longer be trusted."""
_SLACK: Final = 0.1
"""Fraction of the deadline after which the wall-clock timer is reset, so that it is not reset for every small
page."""

P = ParamSpec("P")
T = TypeVar("T")


class Guard:
    """Sets timers by which the kernel kills this process when a page exceeds its deadline.

    SIGPROF and SIGALRM have their default dispositions, so this works within C code and without the parent.
    The limit on processor time depends on the size of the page. The limit on wall-clock time, which also
    passes while other processes run, is the whole `page_deadline`.
    """

    def __init__(
        self, deadline: float, page_bytes: int, position: Position, store_seconds: float = STORE_SECONDS
    ) -> None:
        self.page_bytes = page_bytes
        """Largest page, after decompression."""
        self.crashes: Mapping[str, int] = {}
        """Number of processes killed by pages, by host."""
        self._deadline = deadline
        self._position = position
        self._store_seconds = store_seconds
        self._fetching: tuple[str, float] | None = None
        self._since = -math.inf

    def enter(self, first: int, stop: int, size: int) -> None:
        """Start the clocks for the pages `first` to `stop` of the chunk, of `size` bytes or characters in
        total."""
        self._position.enter(first, stop)
        self._allow(size, 0)

    def host(self, url: str, size: int) -> None:
        """Adjust the limit to the URL of the page in progress and its size after decoding."""
        host = host_of(url)
        self._position.name(host)
        self._allow(size, self.crashes.get(host, 0))

    def rest(self) -> None:
        """Stop the clocks: no page is in progress."""
        self._position.leave()
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._since = -math.inf

    def fetch(self, wanted: FetchNeededError) -> None:
        """Fetch what the page in progress refers to, with the page's clocks stopped. Raises
        UnavailableError."""
        self.rest()
        self._fetching = wanted.what, time.monotonic() + self._store_seconds
        try:
            wanted.fetch()
        finally:
            self._fetching = None

    @property
    def stalled(self) -> str | None:
        """A message if the fetch in progress exceeds the limit for stores, else None."""
        fetching = self._fetching
        if fetching is None or time.monotonic() < fetching[1]:
            return None
        return f"{fetching[0]}: not read in {self._store_seconds:g} s"

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Row:
        """The result of `work`, or the row of a page that makes it raise an exception. Raises
        FetchNeededError.

        A MemoryError ends the process.
        """
        try:
            return work(*args, **kwargs)
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except FetchNeededError:
            raise
        except Exception as error:
            return failed_row(error)

    def _allow(self, size: int, crashes: int) -> None:
        signal.setitimer(signal.ITIMER_PROF, seconds(self._deadline, size, self.page_bytes, crashes))
        now = time.monotonic()
        if now - self._since > _SLACK * self._deadline:
            signal.setitimer(signal.ITIMER_REAL, (1 + _SLACK) * self._deadline)
            self._since = now

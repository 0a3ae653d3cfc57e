"""Bounds on what a page may take of the process that reads it: processor time, and time."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Final, ParamSpec, TypeVar

from stream.children.deadline import host_of, seconds
from stream.children.position import Position
from stream.fingerprint.row import Row, Status
from stream.pages.outside.errors import WantedError

STORE_SECONDS: Final = 60.0
"""A store may take so long over one read; then the process that waits for it ends, and another asks again."""

OUT_OF_MEMORY: Final = 77
"""Exit code after a MemoryError: what the page left behind cannot be trusted to be whole."""
MAX_DETAIL: Final = 500
_SLACK: Final = 0.1
"""Share of the deadline after which the wall clock's timer is set anew: not for every small page."""

P = ParamSpec("P")
T = TypeVar("T")


class Guard:
    """The kernel ends the process at a deadline, also inside C code and when the parent is gone: SIGPROF and
    SIGALRM have their default dispositions.

    Processor time, which nothing but the page takes, is bounded by the page's size. The wall clock runs on
    while others have the processors; it ends what takes longer than the whole of `page_deadline`.
    """

    def __init__(
        self, deadline: float, page_bytes: int, position: Position, store_seconds: float = STORE_SECONDS
    ) -> None:
        self.page_bytes = page_bytes
        """Largest page, after decompression."""
        self.crashes: Mapping[str, int] = {}
        """By host, how many of its pages have ended processes."""
        self._deadline = deadline
        self._position = position
        self._store_seconds = store_seconds
        self._fetching: tuple[str, float] | None = None
        self._since = -math.inf

    def enter(self, first: int, stop: int, size: int) -> None:
        """Begin with pages of the chunk, of so many bytes or characters together."""
        self._position.enter(first, stop)
        self._allow(size, 0)

    def host(self, url: str, size: int) -> None:
        """The page at hand has this URL and, now that it is decoded, this size."""
        host = host_of(url)
        self._position.name(host)
        self._allow(size, self.crashes.get(host, 0))

    def rest(self) -> None:
        """No page is at hand."""
        self._position.leave()
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._since = -math.inf

    def fetch(self, wanted: WantedError) -> None:
        """What the page at hand refers to, on the time of the store that has it. Raises AwayError."""
        self.rest()
        self._fetching = wanted.what, time.monotonic() + self._store_seconds
        try:
            wanted.fetch()
        finally:
            self._fetching = None

    @property
    def stalled(self) -> str | None:
        """What has been waited for longer than a store may take."""
        fetching = self._fetching
        if fetching is None or time.monotonic() < fetching[1]:
            return None
        return f"{fetching[0]}: not read in {self._store_seconds:g} s"

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Row:
        """What `work` gives, or the row of a page that makes it fail. Raises WantedError."""
        try:
            return work(*args, **kwargs)
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except WantedError:
            raise
        except Exception as error:
            return failed(error)

    def _allow(self, size: int, crashes: int) -> None:
        signal.setitimer(signal.ITIMER_PROF, seconds(self._deadline, size, self.page_bytes, crashes))
        now = time.monotonic()
        if now - self._since > _SLACK * self._deadline:
            signal.setitimer(signal.ITIMER_REAL, (1 + _SLACK) * self._deadline)
            self._since = now


def failed(error: Exception) -> Row:
    """The row of a page that raised it."""
    detail = f"{type(error).__name__}: {error}"
    return Row(Status.REJECTED, None, None, None, reason="failed", detail=detail[:MAX_DETAIL])

"""Which page a child is at, in memory that it shares with its parent and that outlives it.

A child that is ended in the middle of a page cannot tell which one it was, and telling before each page would
wake the parent as often. Writing here costs less than a microsecond.
"""

from __future__ import annotations

import mmap
import os
from typing import Final

SIZE: Final = 4096
MAX_HOST: Final = 255
"""Bytes kept of a host; no name that resolves is longer."""
_FIRST, _STOP, _HOST = 0, 1, 2
_HOST_AT: Final = 32


class Position:
    """Pages of the chunk that a child has: those at hand, and the host of the last one that was read."""

    def __init__(self, file: int | None = None) -> None:
        """Maps `file`, or memory of its own."""
        self.file = os.memfd_create("position", os.MFD_CLOEXEC) if file is None else file
        if file is None:
            os.ftruncate(self.file, SIZE)
        self._memory = mmap.mmap(self.file, SIZE)
        self._numbers = memoryview(self._memory)[:_HOST_AT].cast("q")

    def enter(self, first: int, stop: int) -> None:
        """The pages `first` to `stop` are at hand, several when they are fingerprinted together."""
        self._numbers[_HOST] = 0
        self._numbers[_FIRST] = first
        self._numbers[_STOP] = stop

    def name(self, host: str) -> None:
        """The page at hand is of that host."""
        content = host.encode("utf-8", "replace")[:MAX_HOST]
        self._memory[_HOST_AT : _HOST_AT + len(content)] = content
        self._numbers[_HOST] = len(content)

    def leave(self) -> None:
        """No page is at hand."""
        self.enter(0, 0)

    @property
    def pages(self) -> range:
        """Those at hand."""
        return range(self._numbers[_FIRST], self._numbers[_STOP])

    @property
    def host(self) -> str:
        """Of the page at hand; empty where that is not known."""
        length = min(max(0, self._numbers[_HOST]), MAX_HOST)
        return self._memory[_HOST_AT : _HOST_AT + length].decode("utf-8", "replace")

    def close(self) -> None:
        """Unmap it, and close the file; once is enough."""
        if not self._memory.closed:
            self._numbers.release()
            self._memory.close()
            os.close(self.file)

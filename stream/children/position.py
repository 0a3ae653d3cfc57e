"""The position of a child in its chunk, in memory shared with the parent.

A child that is killed cannot report its page, and a message before each page would wake the parent each time.
A write to shared memory takes less than a microsecond, and remains readable after the child's death.
"""

from __future__ import annotations

import mmap
import os
from typing import Final

SIZE: Final = 4096
MAX_HOST: Final = 255
"""Bytes of a host that are kept. No host name that resolves is longer."""
_FIRST, _STOP, _HOST = 0, 1, 2
_HOST_AT: Final = 32


class Position:
    """The pages of its chunk that a child has in progress, and the host of the page if it is known."""

    def __init__(self, file: int | None = None) -> None:
        """Map the memory of the descriptor `file`, or create it."""
        self.file = os.memfd_create("position", os.MFD_CLOEXEC) if file is None else file
        if file is None:
            os.ftruncate(self.file, SIZE)
        self._memory = mmap.mmap(self.file, SIZE)
        self._numbers = memoryview(self._memory)[:_HOST_AT].cast("q")

    def enter(self, first: int, stop: int) -> None:
        """Record that the pages `first` to `stop` are in progress; several are fingerprinted as a batch."""
        self._numbers[_HOST] = 0
        self._numbers[_FIRST] = first
        self._numbers[_STOP] = stop

    def name(self, host: str) -> None:
        """Record the host of the page in progress."""
        content = host.encode("utf-8", "replace")[:MAX_HOST]
        self._memory[_HOST_AT : _HOST_AT + len(content)] = content
        self._numbers[_HOST] = len(content)

    def leave(self) -> None:
        """Record that no page is in progress."""
        self.enter(0, 0)

    @property
    def pages(self) -> range:
        """The pages in progress."""
        return range(self._numbers[_FIRST], self._numbers[_STOP])

    @property
    def host(self) -> str:
        """The host of the page in progress; empty if unknown."""
        length = min(max(0, self._numbers[_HOST]), MAX_HOST)
        return self._memory[_HOST_AT : _HOST_AT + length].decode("utf-8", "replace")

    def close(self) -> None:
        """Unmap the memory and close its descriptor. May be called again."""
        if not self._memory.closed:
            self._numbers.release()
            self._memory.close()
            os.close(self.file)

"""Reads a source in a thread, so that its blocking reads do not stop the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterable
from typing import Final

from stream.sources.source import Message

AHEAD: Final = 8 << 20
"""Most bytes of messages read ahead."""


class _Reader:
    """A thread that fills a buffer of at most `ahead` bytes, and wakes the event loop when it adds to an
    empty buffer."""

    def __init__(self, messages: Iterable[Message], ahead: int) -> None:
        self._messages = messages
        self._ahead = ahead
        self._loop = asyncio.get_running_loop()
        self._room = threading.Condition()
        self._pending: list[Message] = []
        self._size = 0
        self._closed = False
        self._done = False
        self._error: BaseException | None = None
        self._ready = asyncio.Event()
        # A daemon thread: a blocked read of standard input cannot be interrupted, and must not delay exit.
        threading.Thread(target=self._run, name="feed", daemon=True).start()

    def _run(self) -> None:
        try:
            for message in self._messages:
                with self._room:
                    self._room.wait_for(lambda: self._size < self._ahead or self._closed)
                    if self._closed:
                        return
                    self._pending.append(message)
                    self._size += len(message.value)
                    if len(self._pending) == 1:
                        self._wake()
        except BaseException as error:  # raised again by take()
            self._error = error
        finally:
            with self._room:
                self._done = True
                if not self._closed:
                    self._wake()

    def _wake(self) -> None:
        self._loop.call_soon_threadsafe(self._ready.set)

    async def take(self) -> list[Message]:
        """All messages read so far. Waits for at least one; an empty list is the end. Raises what the source
        raised."""
        while True:
            with self._room:
                taken, self._pending, self._size = self._pending, [], 0
                done = self._done
                self._room.notify()
            if taken:
                return taken
            if done:
                if self._error is not None:
                    raise self._error
                return []
            await self._ready.wait()
            self._ready.clear()

    def close(self) -> None:
        """Stop the thread at its next message."""
        with self._room:
            self._closed = True
            self._room.notify()


async def feed(messages: Iterable[Message], *, ahead: int = AHEAD) -> AsyncGenerator[list[Message], None]:
    """Yield messages in order, in lists of those read since the last one. Use it with `aclosing`."""
    reader = _Reader(messages, ahead)
    try:
        while taken := await reader.take():
            yield taken
    finally:
        reader.close()

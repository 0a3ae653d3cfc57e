"""The interface of brokers for demo, tests and `neardup broker`."""

from __future__ import annotations

import abc
from types import TracebackType
from typing import Self


class LocalBroker(abc.ABC):
    """A running broker. As a context manager, it is stopped at the end."""

    bootstrap_servers: str
    """`host:port`, which does not change with a restart."""
    description: str
    """The kind of broker and its address, in one line."""
    ours: bool = True
    """Whether we started it, and may kill and restart it."""

    @abc.abstractmethod
    def alive(self) -> bool:
        """Return whether it runs, as far as this machine can tell."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Stop the broker and remove temporary data. May be called twice."""

    @abc.abstractmethod
    def kill(self) -> None:
        """Kill the broker at once, as a power cut would. `restart` starts it again."""

    @abc.abstractmethod
    def restart(self) -> None:
        """Stop the broker gracefully if it runs, and start it again with the same port and data."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

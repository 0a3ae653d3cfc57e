"""What every local broker can do."""

from __future__ import annotations

import abc
from types import TracebackType
from typing import Self


class LocalBroker(abc.ABC):
    """A broker that answers; stopped when the `with` block ends."""

    bootstrap_servers: str
    """`host:port`, the same after a restart."""
    description: str
    """One line: what it is and where."""
    ours: bool = True
    """Whether we started it, and hence may kill and restart it."""

    @abc.abstractmethod
    def stop(self) -> None:
        """End the broker; a temporary data directory is removed. Doing it twice is fine."""

    @abc.abstractmethod
    def kill(self) -> None:
        """End the broker at once, as a power cut would; `restart` brings it back."""

    @abc.abstractmethod
    def restart(self) -> None:
        """Stop the broker in good order if it runs, and start it again: same port, same data."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

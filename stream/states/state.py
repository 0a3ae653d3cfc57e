"""What the room asks of a state."""

from __future__ import annotations

from typing import Any, Protocol

from stream.tables.store.rocks import Store


class OpenState(Protocol):
    """A state in a directory, which this process has open."""

    @property
    def store(self) -> Store:
        """Where it is stored."""

    @property
    def meta(self) -> Any:
        """Its metadata, another object after each write. They say how far it has come: those of a state that
        follows journal and decisions have `applied`, `last` and `decided`."""

    def close(self) -> None:
        """Flush, and release the directory."""


class Erasable(OpenState, Protocol):
    """A state from which pages may have to be erased."""

    @property
    def is_erased(self) -> bool:
        """Whether nothing is left of what was to be erased."""

    @property
    def erasable(self) -> int:
        """The offset of decisions up to which what they have erased is known. Nothing is left of that once it
        is blanked and the files are rewritten."""

    def compact(self) -> None:
        """Rewrite the files that had what was blanked, while others may write."""

    def note_erased(self, erased: int) -> None:
        """Note that nothing is left of what decisions before the offset `erased` have erased."""

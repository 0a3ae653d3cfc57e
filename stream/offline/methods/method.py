"""What every near-neighbour method has in common."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar, Final

from stream.errors import SettingsError
from stream.tables.arrays import U64
from stream.tables.words import Pairs, as_words


@dataclass(frozen=True, slots=True)
class Cost:
    """What one query costs, and what the method holds."""

    probes: float
    """Look-ups a query."""
    candidates: float
    """Stored fingerprints a query is compared with."""
    bytes: float
    """Of all arrays built over the stored fingerprints."""


class Method(abc.ABC):
    """Finds, for queries, all stored fingerprints at a Hamming distance of at most `distance`.

    All methods give the same answer: every pair once, equal stored fingerprints each on their own. Made from
    stored fingerprints of `width` bits (see `stream.tables.words` for shapes). Raises SettingsError.
    """

    summary: ClassVar[str]
    """The method in a line."""

    def __init__(self, stored: U64, width: int, distance: int) -> None:
        if not 0 <= distance < width:
            raise SettingsError(f"distance: {distance} bits of {width}; allowed are 0 to {width - 1}")
        self.stored: Final = as_words(stored, width)
        self.width: Final = width
        self.distance: Final = distance
        self.queries = 0
        """Queries so far."""
        self.probes = 0
        """Look-ups so far."""
        self.candidates = 0
        """Comparisons so far."""

    def search(self, queries: U64) -> Pairs:
        """The neighbours of each query."""
        words = as_words(queries, self.width)
        self.queries += len(words)
        return self._search(words)

    @abc.abstractmethod
    def _search(self, queries: U64) -> Pairs:
        """The neighbours of queries (n, words)."""

    @property
    @abc.abstractmethod
    def bytes(self) -> int:
        """Of all arrays built."""

    @classmethod
    @abc.abstractmethod
    def predicted(cls, stored: int, width: int, distance: int) -> Cost:
        """The cost over that many random fingerprints, computed and not measured."""

    @property
    def measured(self) -> Cost:
        """The cost so far."""
        queries = max(self.queries, 1)
        return Cost(self.probes / queries, self.candidates / queries, self.bytes)

    def close(self) -> None:  # noqa: B027  # few methods hold more than arrays
        """Let go of threads and processes."""

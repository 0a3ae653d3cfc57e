"""The interface of near-neighbour methods."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar, Final

from stream.errors import SettingsError
from stream.fingerprint.lanes import as_words
from stream.offline.pairs import Pairs
from stream.tables.arrays import U64


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a query, and the memory of the method."""

    probes: float
    """Look-ups per query."""
    candidates: float
    """Comparisons per query."""
    bytes: float
    """Size of all arrays built over the stored fingerprints."""


class Method(abc.ABC):
    """An index over `stored` fingerprints of `width` bits, to find those within a Hamming distance of
    `distance` of queries. `stream.fingerprint.lanes` tells their shapes.

    All methods find the same pairs, each once; equal stored fingerprints count separately. Raises
    SettingsError.
    """

    summary: ClassVar[str]
    """A description of the method in one line."""

    def __init__(self, stored: U64, width: int, distance: int) -> None:
        if not 0 <= distance < width:
            raise SettingsError(f"distance: {distance} bits of {width} is not within 0 to {width - 1}")
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
        """All pairs of a query and a stored fingerprint within the distance."""
        words = as_words(queries, self.width)
        self.queries += len(words)
        return self._search(words)

    @abc.abstractmethod
    def _search(self, queries: U64) -> Pairs:
        """`search` for queries (n, lanes)."""

    @property
    @abc.abstractmethod
    def bytes(self) -> int:
        """Size of all arrays built."""

    @classmethod
    @abc.abstractmethod
    def predicted(cls, stored: int, width: int, distance: int) -> Cost:
        """The computed cost over `stored` random fingerprints."""

    @property
    def measured(self) -> Cost:
        """The cost of the queries so far."""
        queries = max(self.queries, 1)
        return Cost(self.probes / queries, self.candidates / queries, self.bytes)

    def close(self) -> None:  # noqa: B027  # few methods hold more than arrays
        """Release threads and processes."""

"""When two pages are similar, and which of several similar anchors is named.

All integers: similarity in ten-thousandths first, then distance, then age (rule 15).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stream.errors import SettingsError
from stream.fingerprint.parity import ONE
from stream.fingerprint.row import WORD, Status
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.sketch import similarities, similarities_at
from stream.messages.verdict_options import VerdictOptions
from stream.tables.design import Design

NO_SIMILARITY: Final = -1
"""Where nothing is compared, or the mode is strict and no sketch is looked at."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The similarity rule of a journal."""

    options: VerdictOptions
    scheme: Scheme

    def __post_init__(self) -> None:
        """Raises SettingsError for an option that has no meaning with this scheme."""
        if self.options.short_distance and not self.scheme.short_tokens:
            raise SettingsError(
                f"short_distance={self.options.short_distance}: no page is short with short_tokens=0"
            )

    def design(self) -> Design:
        """How the words of the tables are cut. Raises SettingsError where no tables can be made so."""
        options, width = self.options, self.scheme.width
        if options.by_minima:
            width = WORD
        elif width > WORD:
            raise SettingsError(
                f"width: {width} bits; tables of fingerprints (keys=fingerprint, mode=strict) take at most"
                f" {WORD}"
            )
        return Design(options.blocks, options.choose, width)

    def largest_distance(self, status: int) -> int:
        """Largest distance of a near-duplicate, for a later page of that status."""
        return self.options.largest_distance if status == Status.SHORT else self.options.distance

    def near(self, distances: NDArray[np.integer[Any]], statuses: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Which of m distances are near enough, given the later pages' statuses (m,) or (1,)."""
        near: NDArray[np.bool_] = distances <= self.options.distance
        if self.options.short_distance:
            near |= (statuses == Status.SHORT) & (distances <= self.options.short_distance)
        return near

    @property
    def compared(self) -> int:
        """With how many candidates a page's sketch is compared at most (rule 18)."""
        return sys.maxsize if self.options.strict else self.options.compared or sys.maxsize

    @property
    def least_similarity(self) -> int:
        """Least similarity of a near-duplicate, in ten-thousandths; below every one in strict mode."""
        return NO_SIMILARITY if self.options.strict else round(self.options.least_similarity * ONE)

    def similarities(self, a: NDArray[np.uint64], b: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Estimated Jaccard similarities of m pairs of sketches, each (m, words), in whole ten-thousandths;
        all NO_SIMILARITY in strict mode."""
        if self.options.strict:
            return np.full(len(a), NO_SIMILARITY, np.int64)
        return similarities(a, b, self.scheme)

    def similarities_at(
        self,
        a: NDArray[np.uint64],
        rows_a: NDArray[np.int64],
        b: NDArray[np.uint64],
        rows_b: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """The same of the m pairs (a[rows_a], b[rows_b])."""
        if self.options.strict:
            return np.full(len(rows_a), NO_SIMILARITY, np.int64)
        return similarities_at(a, rows_a, b, rows_b, self.scheme)

    def published(self, similarity: int) -> float | None:
        """A similarity of so many ten-thousandths as verdicts say it; None in strict mode."""
        return None if similarity == NO_SIMILARITY else similarity / ONE

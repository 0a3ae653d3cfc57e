"""When two pages are similar, and which of several similar anchors is named.

All integers: matching sketch bins first, then distance, then age (rule 15).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.scheme import Scheme
from stream.fingerprint.sketch import matches
from stream.judge.options import VerdictOptions

NO_MATCHES: Final = -1
"""Matching bins where the mode is strict and no sketch is looked at."""
_SLICE: Final = 1 << 16
"""Pairs compared at once: 128-byte sketches of so many pairs take 16 MiB."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The similarity rule of a journal."""

    options: VerdictOptions
    scheme: Scheme

    @property
    def least_matches(self) -> int:
        """Least number of matching bins of a near-duplicate; below every count in strict mode."""
        return NO_MATCHES if self.options.strict else self.scheme.matching_bins(self.options.least_similarity)

    def matches(self, a: NDArray[np.uint64], b: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Matching bins of m pairs of sketches, each (m, words); all NO_MATCHES in strict mode."""
        if self.options.strict:
            return np.full(len(a), NO_MATCHES, np.int64)
        return matches(a, b, self.scheme.sketch_bits)

    def matches_at(
        self,
        a: NDArray[np.uint64],
        rows_a: NDArray[np.int64],
        b: NDArray[np.uint64],
        rows_b: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Matching bins of the m pairs (a[rows_a], b[rows_b]), in slices that bound the memory."""
        found = [
            self.matches(a[rows_a[i : i + _SLICE]], b[rows_b[i : i + _SLICE]])
            for i in range(0, len(rows_a), _SLICE)
        ]
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def similarity(self, matching: int) -> float | None:
        """Estimated Jaccard similarity as published; None in strict mode."""
        return None if matching == NO_MATCHES else self.scheme.similarity(matching)

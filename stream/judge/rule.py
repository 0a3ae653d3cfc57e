"""The similarity rule: when two pages are near-duplicates, and which of several matching anchors is best.

The order of anchors is by similarity in integer ten-thousandths, then distance, then age (rule 15).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stream.errors import SettingsError
from stream.fingerprint.lanes import first_words
from stream.fingerprint.minima import MINIMA_WORDS
from stream.fingerprint.parity import ONE
from stream.fingerprint.row import WORD, Status
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.sketch import SketchPairs, both_listed, counted, similarities
from stream.messages.verdict_options import VerdictOptions
from stream.tables.design import Design
from stream.tables.reserves.keys import FIRST_PAIRS, PAIRS
from stream.tables.search.probing import SearchOptions

NO_SIMILARITY: Final = -1
"""Marks pages that were not compared, and all similarities in strict mode, which ignores sketches."""
_ALL: Final = sys.maxsize - 1
"""No limit on the candidates that are compared."""
UNLIKE: Final = -2 * ONE
"""Added to similarities that do not suffice, so that they follow all that do, and remain in order."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The similarity rule of a journal."""

    options: VerdictOptions
    scheme: Scheme

    def __post_init__(self) -> None:
        """Raise SettingsError for an option that has no effect with this scheme."""
        if self.options.short_distance and not self.scheme.short_tokens:
            raise SettingsError(
                f"short_distance={self.options.short_distance}: has no effect with short_tokens=0"
            )

    def design(self) -> Design:
        """Return the table design. Raises SettingsError if the options allow no tables."""
        options, width = self.options, self.scheme.width
        if not options.strict:
            return FIRST_PAIRS
        if width > WORD:
            raise SettingsError(
                f"width: {width} bits; tables of fingerprints (mode=strict) take at most {WORD}"
            )
        return Design(options.blocks, options.choose, width)

    @property
    def reserves(self) -> bool:
        """Whether anchors enter reserves in place of full pairs (rule 16)."""
        return not self.options.strict

    def full_buckets(self, skipped: int) -> int:
        """Return how many full buckets an anchor with this mask was kept out of."""
        return (skipped & (1 << PAIRS) - 1).bit_count()

    def search_options(self) -> SearchOptions:
        """Return how the tables are searched."""
        return SearchOptions(
            distance=self.options.largest_distance,
            cap=None if self.options.strict else self.options.bucket_cap,
        )

    def table_words(
        self, fingerprints: NDArray[np.uint64], sketches: NDArray[np.uint64]
    ) -> NDArray[np.uint64]:
        """Return the keys (n, W) of n pages for the tables: the fingerprints, or the minima of shingles, the
        last lanes of the sketches (n, lanes)."""
        if self.options.strict:
            return first_words(fingerprints).reshape(-1, 1)
        if not len(sketches):
            return np.zeros((0, MINIMA_WORDS), np.uint64)
        return np.ascontiguousarray(sketches[:, -MINIMA_WORDS:])

    def largest_distance(self, status: int) -> int:
        """Return the largest distance of near-duplicates if the later page has this status."""
        return self.options.largest_distance if status == Status.SHORT else self.options.within

    def within(self, statuses: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the largest distance of near-duplicates for later pages of these statuses (n,)."""
        short, longer = map(self.largest_distance, (Status.SHORT, Status.READY))
        return np.where(statuses == Status.SHORT, short, longer)

    def near(self, distances: NDArray[np.integer[Any]], statuses: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Return the mask of m distances that are small enough, given the later pages' statuses (m,) or
        (1,)."""
        near: NDArray[np.bool_] = distances <= self.options.within
        if self.options.short_distance:
            near |= (statuses == Status.SHORT) & (distances <= self.options.short_distance)
        return near

    @property
    def compared(self) -> int:
        """Maximum number of candidates whose sketches are compared with that of a page (rule 18)."""
        return _ALL if self.options.strict else self.options.compared or _ALL

    @property
    def selected(self) -> int:
        """Maximum number of candidates that a search selects for a page: one more than are compared, which
        tells that there are more."""
        return self.compared + 1

    @property
    def least_similarity(self) -> int:
        """Least estimated similarity of near-duplicates, in ten-thousandths; in strict mode below all
        similarities."""
        return NO_SIMILARITY if self.options.strict else _in_ten_thousandths(self.options.similarity)

    @property
    def evidence(self) -> int:
        """Least similarity, in ten-thousandths, of the page that a unique page is said to be nearest to."""
        return _in_ten_thousandths(self.options.evidence)

    @property
    def least_listed(self) -> int:
        """Least similarity of two pages that are compared by lists of their shingles (rule 19)."""
        if self.options.strict:
            return NO_SIMILARITY
        return min(ONE, _in_ten_thousandths(self.options.similarity, self.options.margin))

    def describe_limit(self, similarity: int, least: int) -> str:
        """Return `least`, the similarity that suffices, as people read it: that of short pages. Estimates
        have noise, and `margin` less suffices; that is told of a pair which needs it, `similarity` being
        that of the pair."""
        limit = f"{self.least_listed / ONE:g}"
        if not least <= similarity < self.least_listed:
            return limit
        return f"{limit}, less {(self.least_listed - least) / ONE:g} for the noise of the estimate,"

    def least(self, pairs: SketchPairs) -> NDArray[np.int64]:
        """Least similarity of each of the m pairs of sketches."""
        if self.options.strict:
            return np.full(len(pairs.rows_a), NO_SIMILARITY, np.int64)
        return np.where(both_listed(pairs, self.scheme), self.least_listed, self.least_similarity)

    def counted(self, pairs: SketchPairs) -> NDArray[np.bool_]:
        """Whether the similarity of each of the m pairs is counted, as both pages are very short, rather than
        estimated (rule 19). No verdict depends on it."""
        return counted(pairs, self.scheme)

    def similarities(self, pairs: SketchPairs) -> NDArray[np.int64]:
        """Estimate the Jaccard similarities of m pairs of sketches, in integer ten-thousandths.

        In strict mode all are NO_SIMILARITY.
        """
        if self.options.strict:
            return np.full(len(pairs.rows_a), NO_SIMILARITY, np.int64)
        return similarities(pairs, self.scheme)

    def published(self, similarity: int) -> float | None:
        """Convert a similarity in ten-thousandths to a fraction; None in strict mode."""
        return None if similarity == NO_SIMILARITY else similarity / ONE

    def disclosed(self, similarity: int) -> float | None:
        """Convert a similarity in ten-thousandths to the value in verdicts: to two decimals in public ones,
        since four tell into which bins of a sketch shingles fall."""
        fraction = self.published(similarity)
        return fraction if fraction is None or not self.options.public else to_hundredths(fraction)


def to_hundredths(similarity: float) -> float:
    """Return a similarity of four decimals with two, rounded to the nearest."""
    return (round(similarity * ONE) + ONE // 200) // (ONE // 100) / 100


@cache
def _in_ten_thousandths(*decimals: str) -> int:
    """Return the sum of decimals. Kept, as each search asks for the same few, and fractions are slow."""
    return round(sum(map(Fraction, decimals)) * ONE)

"""Finds the stored candidates of pages and compares them, for judging, queries and look-ups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.lanes import distances, first_words
from stream.fingerprint.sketch import SketchPairs
from stream.judge.nearest import nearest_alive
from stream.judge.rule import Rule
from stream.judge.state import Anchors, State
from stream.tables.search.probing import ALL, Nearest
from stream.tables.search.result import SearchResult


class Compared(NamedTuple):
    """m pairs of a row and a candidate anchor, sorted by row, then anchor.

    Of the anchors that share a bucket with a row, they are the nearest, as many as are compared (rule 18).
    """

    candidates: SearchResult
    anchors: Anchors
    """Records of the distinct anchors in `candidates`, and possibly of others."""
    place: NDArray[np.int64]
    """(m,): index into `anchors` of each pair's anchor."""
    similarity: NDArray[np.int64]
    """(m,): estimated similarity in ten-thousandths; NO_SIMILARITY in strict mode."""
    similar: NDArray[np.bool_]
    """(m,): whether the pair are near-duplicates by the rule."""
    ends: NDArray[np.int64]
    """(n,): end of each row's pairs."""
    returned: int
    """Number of pairs that the tables returned; for crowded rows, little more than the nearest."""

    @property
    def url_bytes(self) -> NDArray[np.int64]:
        """(m,): size of the URL of each pair's anchor."""
        return self.anchors.url_bytes[self.place]

    def best_first(self, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sort pairs by row, then best first: by similarity, distance and age (rule 15)."""
        candidates = self.candidates
        order = np.lexsort(
            (
                candidates.anchor[pairs],
                candidates.distance[pairs],
                -self.similarity[pairs],
                candidates.row[pairs],
            )
        )
        return pairs[order]


def compare(
    state: State,
    rule: Rule,
    fingerprints: NDArray[np.uint64],
    uncertain: NDArray[np.uint8],
    sketches: NDArray[np.uint64],
    statuses: NDArray[np.uint8],
) -> Compared:
    """Find and compare the candidates of n rows.

    Rows are given by fingerprints, least certain bits (n, UNCERTAIN_BITS), sketches (n, lanes) and `Status`
    codes (n,).
    """
    words = rule.table_words(fingerprints, sketches)
    candidates = state.tables.search(first_words(fingerprints), uncertain, words)
    search = _Search(state, rule, lambda: ALL._replace(most=rule.compared))
    return search.compare(candidates, fingerprints, sketches, statuses)


def compare_in_parts(
    state: State,
    rule: Rule,
    fingerprints: NDArray[np.uint64],
    uncertain: NDArray[np.uint8],
    sketches: NDArray[np.uint64],
    statuses: NDArray[np.uint8],
    wanted: Callable[[], Nearest],
) -> Iterator[tuple[int, Compared]]:
    """Like `compare`, in parts that take little memory. Yields (first row, result with rows counted from 0).

    `wanted` is called if a row has more pairs than are compared; otherwise the pairs include anchors that die
    among the rows.
    """
    words, search = rule.table_words(fingerprints, sketches), _Search(state, rule, wanted)
    for first, candidates in state.tables.searches(
        first_words(fingerprints), uncertain, words, wanted if fingerprints.shape[1] == 1 else None
    ):
        some = slice(first, first + len(candidates.probed[0].queries.keys))
        yield first, search.compare(candidates, fingerprints[some], sketches[some], statuses[some], first)


class _Search:
    """The state shared by the parts of a search."""

    def __init__(self, state: State, rule: Rule, wanted: Callable[[], Nearest]) -> None:
        self._state, self._rule, self._wanted = state, rule, wanted
        self._anchors: Anchors | None = None

    def _read(self, numbers: NDArray[np.int64]) -> Anchors:
        # Spam finds the same anchors repeatedly, so keep them.
        if self._anchors is None or not self._anchors.has(numbers):
            self._anchors = self._state.anchors(numbers)
        return self._anchors

    def compare(
        self,
        candidates: SearchResult,
        fingerprints: NDArray[np.uint64],
        sketches: NDArray[np.uint64],
        statuses: NDArray[np.uint8],
        first: int = 0,
    ) -> Compared:
        """Compare the candidates of rows, the first of which is row `first` of the search."""
        rule, returned = self._rule, len(candidates.row)
        if fingerprints.shape[1] > 1:  # tables compute distances over the first word only
            anchors = self._read(candidates.anchor)
            distance = distances(
                anchors.fingerprint[anchors.places(candidates.anchor)], fingerprints[candidates.row]
            )
            candidates = replace(candidates, distance=distance)
        ends = _ends(candidates.row, len(fingerprints))
        if rule.compared < returned and np.diff(ends, prepend=0).max() > rule.compared:
            wanted = self._wanted().from_row(first)
            kept = nearest_alive(ends, candidates.anchor, candidates.distance, wanted)
            candidates = replace(
                candidates,
                row=candidates.row[kept],
                anchor=candidates.anchor[kept],
                distance=candidates.distance[kept],
            )
            ends = _ends(candidates.row, len(fingerprints))
        anchors = self._read(candidates.anchor)
        place = anchors.places(candidates.anchor)
        pairs = SketchPairs(sketches, candidates.row, anchors.sketch, place)
        similarity = rule.similarities(pairs)
        enough = similarity >= rule.least(pairs)
        similar = enough & rule.near(candidates.distance, statuses[candidates.row])
        return Compared(candidates, anchors, place, similarity, similar, ends, returned)


def _ends(row: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    ends: NDArray[np.int64] = np.cumsum(np.bincount(row, minlength=rows))
    return ends

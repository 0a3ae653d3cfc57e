"""Stored candidates of fingerprints, each with its similarity: judging, querying and look-up begin here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.columns import distances, first_words
from stream.judge.nearest import may_count
from stream.judge.rule import NO_SIMILARITY, Rule
from stream.judge.state import Anchors, State
from stream.tables.candidates import Candidates
from stream.tables.probing import Nearest

_NONE: Final = np.zeros(0, np.int64)
_NOT_COMPARED: Final = NO_SIMILARITY - 1


class Compared(NamedTuple):
    """m (row, anchor) pairs that a search found, sorted by row, then anchor: of those that share a bucket the
    nearest, as many as are compared (rule 18)."""

    found: Candidates
    anchors: Anchors
    """Records of the anchors in `found`, each once, and perhaps of others."""
    place: NDArray[np.int64]
    """Where in `anchors` each pair's anchor stands (m,)."""
    similarity: NDArray[np.int64]
    """Estimated similarity in ten-thousandths; NO_SIMILARITY in strict mode (m,)."""
    similar: NDArray[np.bool_]
    """Whether the rule holds for the pair (m,)."""
    ends: NDArray[np.int64]
    """Where each row's pairs end (n,)."""
    met: int
    """How many pairs there were before the nearest were taken."""

    def best_first(self, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
        """These pairs, the best of each row first: similarity, then distance, then age (rule 15)."""
        found = self.found
        order = np.lexsort(
            (found.anchor[pairs], found.distance[pairs], -self.similarity[pairs], found.row[pairs])
        )
        return pairs[order]

    def decisive(self, mortal: NDArray[np.int64]) -> NDArray[np.int64]:
        """The similar pairs that a verdict may depend on, the best of each row first: no better one's anchor
        is sure to live. `mortal` anchors, ascending, are not."""
        order = self.best_first(np.flatnonzero(self.similar))
        row = self.found.row[order]
        lives = ~np.isin(self.found.anchor[order], mortal)
        alive_before: NDArray[np.int64] = np.cumsum(lives) - lives
        starts = np.flatnonzero(np.diff(row, prepend=-1))
        of_row: NDArray[np.int64] = np.repeat(alive_before[starts], np.diff(starts, append=len(row)))
        decisive: NDArray[np.int64] = order[alive_before == of_row]
        return decisive


def compare(
    state: State,
    rule: Rule,
    fingerprints: NDArray[np.uint64],
    uncertain: NDArray[np.uint8],
    sketches: NDArray[np.uint64],
    statuses: NDArray[np.uint8],
) -> Compared:
    """Search for n rows: their fingerprints, least certain bits (n, UNCERTAIN_BITS), sketches (n, words) and
    `Status` codes (n,)."""
    words = state.table_words(fingerprints, sketches)
    found = state.tables.search(first_words(fingerprints), uncertain, words)
    search = _Search(state, rule, lambda: _NONE)
    return search.compared(found, fingerprints, sketches, statuses)


def compare_in_parts(
    state: State,
    rule: Rule,
    fingerprints: NDArray[np.uint64],
    uncertain: NDArray[np.uint8],
    sketches: NDArray[np.uint64],
    statuses: NDArray[np.uint8],
    mortal: Callable[[], NDArray[np.int64]],
) -> Iterator[tuple[int, Compared]]:
    """The same in parts that take little memory: of the rows from the first number on, in which they are
    counted from 0.

    `mortal` gives anchors that may be dead when it is a row's turn, ascending: where they make a row have
    more pairs than are compared, none of its sketches is yet.
    """
    words, search = state.table_words(fingerprints, sketches), _Search(state, rule, mortal)
    for first, found in state.tables.searches(
        first_words(fingerprints), uncertain, words, search.nearest if fingerprints.ndim == 1 else None
    ):
        some = slice(first, first + len(found.probed[0].keys))
        yield first, search.compared(found, fingerprints[some], sketches[some], statuses[some])


class _Search:
    """What the parts of a search have in common."""

    def __init__(self, state: State, rule: Rule, mortal: Callable[[], NDArray[np.int64]]) -> None:
        self._state, self._rule, self._mortal = state, rule, mortal
        self._anchors: Anchors | None = None

    def nearest(self) -> Nearest:
        """Which candidates are wanted."""
        return Nearest(self._rule.compared, self._mortal())

    def _read(self, numbers: NDArray[np.int64]) -> Anchors:
        # Spam meets the same anchors again and again: read them once.
        if self._anchors is None or not self._anchors.has(numbers):
            self._anchors = self._state.anchors(numbers)
        return self._anchors

    def compared(
        self,
        found: Candidates,
        fingerprints: NDArray[np.uint64],
        sketches: NDArray[np.uint64],
        statuses: NDArray[np.uint8],
    ) -> Compared:
        rule, met = self._rule, len(found.row)
        if fingerprints.ndim > 1:  # of which the tables know the first words alone
            anchors = self._read(found.anchor)
            distance = distances(anchors.fingerprint[anchors.places(found.anchor)], fingerprints[found.row])
            found = replace(found, distance=distance)
        ends = _ends(found.row, len(fingerprints))
        if rule.compared < met and np.diff(ends, prepend=0).max() > rule.compared:
            kept = may_count(ends, found.anchor, found.distance, self._mortal(), rule.compared)
            found = replace(
                found, row=found.row[kept], anchor=found.anchor[kept], distance=found.distance[kept]
            )
            ends = _ends(found.row, len(fingerprints))
        anchors = self._read(found.anchor)
        place = anchors.places(found.anchor)
        pairs: NDArray[np.int64] | slice = slice(None)
        of_row = np.diff(ends, prepend=0)
        if rule.compared < met and of_row.max() > rule.compared:
            pairs = np.flatnonzero(of_row[found.row] <= rule.compared)
        similarity = np.full(len(place), _NOT_COMPARED, np.int64)
        similarity[pairs] = rule.similarities_at(sketches, found.row[pairs], anchors.sketch, place[pairs])
        similar = (similarity >= rule.least_similarity) & rule.near(found.distance, statuses[found.row])
        return Compared(found, anchors, place, similarity, similar, ends, met)


def _ends(row: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    ends: NDArray[np.int64] = np.cumsum(np.bincount(row, minlength=rows))
    return ends

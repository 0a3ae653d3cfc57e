"""Stored candidates of fingerprints, each with its similarity: judging, querying and look-up begin here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.columns import distances, first_words
from stream.judge.rule import Rule
from stream.judge.state import Anchors, State
from stream.tables.candidates import Candidates


class Compared(NamedTuple):
    """m (row, anchor) pairs that a search found, sorted by row, then anchor."""

    found: Candidates
    anchors: Anchors
    """Records of the anchors in `found`, each once, and perhaps of others."""
    place: NDArray[np.int64]
    """Where in `anchors` each pair's anchor stands (m,)."""
    similarity: NDArray[np.int64]
    """Estimated similarity in ten-thousandths; NO_SIMILARITY in strict mode (m,)."""
    similar: NDArray[np.bool_]
    """Whether the rule holds for the pair (m,)."""

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
    return _compared(found, state.anchors(found.anchor), rule, fingerprints, sketches, statuses)


def compare_in_parts(
    state: State,
    rule: Rule,
    fingerprints: NDArray[np.uint64],
    uncertain: NDArray[np.uint8],
    sketches: NDArray[np.uint64],
    statuses: NDArray[np.uint8],
) -> Iterator[tuple[int, Compared]]:
    """The same in parts that take little memory: of the rows from the first number on, in which they are
    counted from 0."""
    words, anchors = state.table_words(fingerprints, sketches), None
    for first, found in state.tables.searches(first_words(fingerprints), uncertain, words):
        # Spam meets the same anchors again and again: read them once.
        if anchors is None or not anchors.has(found.anchor):
            anchors = state.anchors(found.anchor)
        some = slice(first, first + len(found.probed[0].keys))
        yield first, _compared(found, anchors, rule, fingerprints[some], sketches[some], statuses[some])


def _compared(
    found: Candidates,
    anchors: Anchors,
    rule: Rule,
    fingerprints: NDArray[np.uint64],
    sketches: NDArray[np.uint64],
    statuses: NDArray[np.uint8],
) -> Compared:
    place = anchors.places(found.anchor)
    if fingerprints.ndim > 1:  # of which the tables know the first words alone
        distance = distances(anchors.fingerprint[place], fingerprints[found.row])
        found = replace(found, distance=distance)
    similarity = rule.similarities_at(sketches, found.row, anchors.sketch, place)
    similar = (similarity >= rule.least_similarity) & rule.near(found.distance, statuses[found.row])
    return Compared(found, anchors, place, similarity, similar)

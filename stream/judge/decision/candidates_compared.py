"""Finds the stored candidates of pages and compares them, for judging, queries and look-ups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.lanes import distances, first_words, from_integers
from stream.fingerprint.row import Row
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.sketch import SketchPairs
from stream.judge.decision.nearest import ALL, Nearest, nearest_alive
from stream.judge.rule import Rule
from stream.judge.state.baselines import Anchors
from stream.judge.state.state import State
from stream.tables.search.rank import ranks_of
from stream.tables.search.result import SearchResult


class FingerprintedPages(NamedTuple):
    """n pages with a fingerprint."""

    fingerprint: NDArray[np.uint64]
    """(n, lanes)"""
    sketch: NDArray[np.uint64]
    """(n, sketch_bytes / 8)"""
    status: NDArray[np.uint8]
    """(n,): values of `Status`."""

    @classmethod
    def of(cls, rows: Sequence[Row], scheme: Scheme) -> Self:
        """The columns of one or more rows."""
        sketches = np.frombuffer(b"".join(row.sketch for row in rows), "<u8").astype(np.uint64)
        return cls(
            from_integers([row.fingerprint for row in rows], scheme.width),
            sketches.reshape(len(rows), -1),
            np.array([row.status for row in rows], np.uint8),
        )

    def take(self, rows: slice) -> FingerprintedPages:
        """Return some of the pages."""
        return FingerprintedPages._make(column[rows] for column in self)


class Compared(NamedTuple):
    """m pairs of a row and a candidate anchor, sorted by row, then anchor.

    Of the anchors that share a bucket with a row, they are those of the least rank (rule 18), as many as were
    wanted.
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
    rank: NDArray[np.uint8]
    """(m,): those of the least rank are compared."""
    ends: NDArray[np.int64]
    """(n,): end of each row's pairs."""
    returned: int
    """Number of pairs that the tables returned."""

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


def compare(state: State, rule: Rule, pages: FingerprintedPages) -> Compared:
    """Find and compare the candidates of pages."""
    words = rule.table_words(pages.fingerprint, pages.sketch)
    candidates = state.tables.search(first_words(pages.fingerprint), words)
    wanted = ALL._replace(most=rule.compared, within=rule.within(pages.status))
    return _Search(state, rule, lambda: wanted, wanted.most).compare(candidates, pages, words)


def compare_in_parts(
    state: State,
    rule: Rule,
    pages: FingerprintedPages,
    wanted: Callable[[], Nearest],
    entering: NDArray[np.int64] | None,
) -> Iterator[tuple[int, Compared]]:
    """Like `compare`, in parts that take little memory. Yields (first row, result with rows counted from 0).

    `entering` is as of `Tables.searches`. `wanted`, of which `most` is `rule.selected`, may wait for the
    comparison with baselines. It is called if a row has more pairs than the rule selects; otherwise the pairs
    include anchors that die among the rows. Several threads may search at once.
    """
    words = rule.table_words(pages.fingerprint, pages.sketch)
    search = _Search(state, rule, wanted, rule.selected)
    for first, candidates in state.tables.searches(first_words(pages.fingerprint), words, entering):
        part = slice(first, first + len(candidates.reserves.further))
        yield first, search.compare(candidates, pages.take(part), words[part], first)


class _Search:
    """The state shared by the parts of a search."""

    def __init__(self, state: State, rule: Rule, wanted: Callable[[], Nearest], most: int) -> None:
        """`most` is that of `wanted`, which may have to wait."""
        self._state, self._rule, self._wanted, self._most = state, rule, wanted, most
        self._anchors: Anchors | None = None

    def _read(self, numbers: NDArray[np.int64]) -> Anchors:
        # Spam finds the same anchors repeatedly, so keep them.
        if self._anchors is None or not self._anchors.has(numbers):
            self._anchors = self._state.anchors(numbers)
        return self._anchors

    def compare(
        self,
        candidates: SearchResult,
        pages: FingerprintedPages,
        words: NDArray[np.uint64],
        first: int = 0,
    ) -> Compared:
        """Compare the candidates of pages, for which tables were searched by `words` (n, W). The first page
        is row `first` of the search."""
        rule, returned, fingerprints = self._rule, len(candidates.row), pages.fingerprint
        if fingerprints.shape[1] > 1:  # tables compute distances over the first word only
            anchors = self._read(candidates.anchor)
            distance = distances(
                anchors.fingerprint[anchors.places(candidates.anchor)], fingerprints[candidates.row]
            )
            candidates = replace(candidates, distance=distance)
        ends = _ends(candidates.row, len(fingerprints))
        sizes = np.diff(ends, prepend=0)
        if self._most < returned and sizes.max() > self._most:
            wanted = self._wanted().from_row(first)
            rank = self._ranks(candidates, words, np.repeat(sizes > self._most, sizes))
            unsure = candidates.reserve & ~candidates.reserves.further[candidates.row]
            kept = nearest_alive(ends, candidates.anchor, candidates.distance, rank, unsure, wanted)
            candidates = replace(
                candidates,
                row=candidates.row[kept],
                anchor=candidates.anchor[kept],
                distance=candidates.distance[kept],
                reserve=candidates.reserve[kept],
            )
            ends = _ends(candidates.row, len(fingerprints))
        anchors = self._read(candidates.anchor)
        place = anchors.places(candidates.anchor)
        pairs = SketchPairs(pages.sketch, candidates.row, anchors.sketch, place)
        similarity = rule.similarities(pairs)
        enough = similarity >= rule.least(pairs)
        similar = enough & rule.near(candidates.distance, pages.status[candidates.row])
        others = rule.table_words(anchors.fingerprint, anchors.sketch)
        rank = ranks_of(candidates.distance, words, candidates.row, others, place)
        return Compared(candidates, anchors, place, similarity, similar, rank, ends, returned)

    def _ranks(
        self, candidates: SearchResult, words: NDArray[np.uint64], some: NDArray[np.bool_]
    ) -> NDArray[np.uint8]:
        """The ranks (m,) of some of the candidates, by minima that are taken from the tables, as there may be
        far more candidates than are compared. The others have their distance."""
        rank = candidates.distance.copy()
        if not self._rule.options.strict:
            pairs = candidates.row[some], candidates.anchor[some], candidates.distance[some]
            rank[some] = self._state.tables.ranks(words, *pairs)
        return rank


def _ends(row: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    ends: NDArray[np.int64] = np.cumsum(np.bincount(row, minlength=rows))
    return ends

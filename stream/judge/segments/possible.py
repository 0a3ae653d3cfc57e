"""What an answer can say, by the rule of its journal and by the records that it is about.

Whoever may write to the topic `candidates` can answer. What nobody can have found is refused by name, before
it counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stream.errors import AnswerError
from stream.fingerprint.parity import ONE
from stream.fingerprint.row import FINGERPRINTED, Status
from stream.fingerprint.scheme import MINIMA
from stream.judge.batch import Entry, pages_of
from stream.judge.rule import NO_SIMILARITY, Rule
from stream.judge.segments.answer import Answer, ListedPairs, between, shown
from stream.tables.arrays import is_among
from stream.tables.search.rank import A_MINIMUM

_BEHIND_ALL: Final = np.iinfo(np.int64).max


class PossibleAnswers:
    """The ranges of the numbers in answers, by the rule of a journal."""

    def __init__(self, rule: Rule) -> None:
        options = rule.options
        self._selected, self._largest = rule.selected, options.largest_distance
        self._buckets = rule.buckets
        self._similarities = (NO_SIMILARITY, NO_SIMILARITY) if options.strict else (0, ONE)
        limits = rule.least_similarity, rule.least_listed
        self._unlike, self._alike = min(limits), max(limits)
        """Similarities below which no pair are near-duplicates, and from which on all are."""
        self._of_minima = A_MINIMUM * MINIMA if options.by_minima else 0
        """Most by which a rank is above the distance."""

    def refuse_others(self, answer: Answer) -> None:
        """Raise AnswerError unless all numbers of an answer are in their ranges."""
        pairs, most = answer.pairs, answer.most
        if most < self._selected:
            raise AnswerError(
                f"{answer} lists at most {most} candidates of a page, but a judge selects {self._selected}"
            )
        pages, sizes = np.unique(pairs.page, return_counts=True)
        if len(longer := np.flatnonzero(sizes > most)):
            page, size = shown(pages[longer[0]]), sizes[longer[0]]
            raise AnswerError(f"{answer} lists {size} candidates of page {page}, of at most {most}")
        distance, rank, similarity = pairs.distance.astype(np.int64), pairs.rank, pairs.similarity
        least, largest = self._similarities
        for name, column, wrong in (
            ("distance", distance, distance > self._largest),
            ("rank", rank, (rank < distance) | (rank > distance + self._of_minima)),
            ("similarity", similarity, (similarity < least) | (similarity > largest)),
            ("similarity", similarity, pairs.similar & (similarity < self._unlike)),
            ("similarity", similarity, ~pairs.similar & (similarity >= self._alike)),
        ):
            _refuse_pairs(answer, pairs, np.flatnonzero(wrong), name, column)
        if (bucket := int(answer.counts.bucket.max(initial=-1))) >= self._buckets:
            raise AnswerError(f"{answer} counts anchors in bucket {bucket}, which no page has")


class JournalPages:
    """The pages of consecutive journal records."""

    def __init__(self, entries: Sequence[Entry], rule: Rule) -> None:
        # And one more, so that each page that is named has a place.
        status = [*(entry.rows.status for entry in entries), np.full(1, Status.REJECTED, np.uint8)]
        self._page, self._status = np.append(pages_of(entries), _BEHIND_ALL), np.concatenate(status)
        self._rule = rule

    def refuse_others(self, answer: Answer, first: int, until: int) -> None:
        """Raise AnswerError if an answer names a page in [first, until), by packed id, that is not in its
        record or has no fingerprint, or lists an anchor that is too far from such a page."""
        for pages in (answer.pairs.page, answer.cut, answer.counts.page):
            named = pages[between(pages, first, until)]
            place = np.searchsorted(self._page, named)
            missing = self._page[place] != named
            if len(wrong := np.flatnonzero(missing | ~is_among(self._status[place], FINGERPRINTED))):
                why = "is beyond its record" if missing[wrong[0]] else "has no fingerprint"
                raise AnswerError(f"{answer} names page {shown(named[wrong[0]])}, which {why}")
        some = between(answer.pairs.page, first, until)
        pairs = ListedPairs._make(column[some] for column in answer.pairs)
        within = self._rule.within(self._status[np.searchsorted(self._page, pairs.page)])
        _refuse_pairs(answer, pairs, np.flatnonzero(pairs.distance > within), "distance", pairs.distance)


def _refuse_pairs(
    answer: Answer, pairs: ListedPairs, wrong: NDArray[np.intp], name: str, column: NDArray[Any]
) -> None:
    """Raise AnswerError if some pairs are wrong, by what a column says of them."""
    if len(wrong):
        at = int(wrong[0])
        verdict = "similar" if pairs.similar[at] else "not similar"
        raise AnswerError(
            f"{answer} says that page {shown(pairs.page[at])} and anchor {pairs.anchor[at]}, which are"
            f" {verdict}, have the {name} {column[at]}"
        )

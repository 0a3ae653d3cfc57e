"""A search of tables and of answers about sealed ranges, as if one process had all tables."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.errors import AnswerError, AwaitedAnswerError, RefutedAnswerError
from stream.judge.decision.candidates_compared import CandidateSearch, Compared, FingerprintedPages
from stream.judge.decision.decide_rows_compiled import ALIVE
from stream.judge.decision.nearest import nearest_alive
from stream.judge.ids import INDEX_BITS
from stream.judge.rule import Rule
from stream.judge.segments.answer import Answer, Segment
from stream.judge.segments.deaths import Deaths
from stream.judge.state.state import State
from stream.tables.search.nearest import Nearest
from stream.tables.search.result import ProbedTriples
from stream.tables.triples.keys import TRIPLES, keys_of_some

_NUMBER_BITS: Final = 48
"""Bits of an anchor's number, counted from the first segment on, in an order of ranks and numbers."""
_NO_LIMIT: Final = np.iinfo(np.int64).max


class Answers:
    """The answers of the segments that a judge has no tables of.

    One thread changes it. Others may call `about` at the same time.
    """

    def __init__(self, segments: Sequence[Segment] = ()) -> None:
        """Raises AnswerError unless each segment begins where the one before it ends."""
        self.segments: list[Segment] = []
        self._answers: dict[Segment, list[Answer]] = {}
        """Those of each segment, sorted by their first page."""
        self.need(segments)

    def need(self, segments: Sequence[Segment]) -> None:
        """Need answers of these segments alone. Raises AnswerError unless each begins where the one before it
        ends."""
        for one, other in pairwise(segments):
            if one.end != other.first:
                raise AnswerError(f"{one} and {other} do not abut")
        self._answers = {each: self._answers.get(each, []) for each in segments}
        self.segments = list(segments)

    def __contains__(self, segment: Segment) -> bool:
        return segment in self._answers

    def add(self, answer: Answer) -> None:
        """Add an answer, in any order. Raises AnswerError if it is of another range of anchors."""
        if answer.segment not in self:
            ranges = ", ".join(map(str, self.segments))
            raise AnswerError(f"{answer} is of none of the segments in use: {ranges}")
        insort(self._answers[answer.segment], answer, key=_first_page)

    def replace(self, segment: Segment, answers: list[Answer]) -> None:
        """Let these be the answers of a segment."""
        self._answers[segment] = sorted(answers, key=_first_page)

    def answered_until(self, offset: int, end: int, deaths: Deaths) -> tuple[int, Segment | None]:
        """Return the journal record before which all records from `offset` on are answered about by all
        segments, as of known positions, and the first of the segments that does not answer about that one;
        None if there are no segments. The search stops at `end`, so that it may be that or a later one."""
        least: tuple[int, Segment | None] = (_NO_LIMIT, None)
        for segment in self.segments:
            until = offset << INDEX_BITS
            for each in self._answers[segment]:
                if until >= end << INDEX_BITS or each.run.first > until:
                    break
                if each.run.until > until and deaths.knows(each.decided):
                    until = each.run.until
            if until >> INDEX_BITS < least[0]:
                least = until >> INDEX_BITS, segment
        return least

    def about(self, ids: NDArray[np.int64], segment: Segment, deaths: Deaths) -> list[ChosenAnswer]:
        """Return the answers of a segment about pages (n,), and the rows for which each is taken: the newest
        ones, and of those the ones that list most.

        Raises AwaitedAnswerError if some page has none that is as of a known position.
        """
        if not len(ids):
            return []
        first, last = int(ids[0]), int(ids[-1])
        answers = self._answers[segment].copy()  # as others may come meanwhile
        usable = [
            each
            for each in answers[: bisect_right(answers, last, key=_first_page)]
            if first < each.run.until and deaths.knows(each.decided)
        ]
        usable.sort(key=lambda each: (each.decided, each.most))
        chosen = np.full(len(ids), -1)
        for number, each in enumerate(usable):
            chosen[each.run.has(ids)] = number
        missing = np.flatnonzero(chosen < 0)
        if len(missing):
            offset = int(ids[missing[0]]) >> INDEX_BITS
            raise AwaitedAnswerError(f"no answer of {segment} about journal record {offset}", offset)
        return [
            ChosenAnswer(usable[number], np.flatnonzero(chosen == number))
            for number in np.unique(chosen).tolist()
        ]


def _first_page(answer: Answer) -> int:
    return answer.run.first


class _Pairs(NamedTuple):
    """m pairs of a row and an anchor: the columns of `ListedPairs`."""

    row: NDArray[np.int64]
    anchor: NDArray[np.int64]
    distance: NDArray[np.uint8]
    rank: NDArray[np.uint8]
    similarity: NDArray[np.int64]
    similar: NDArray[np.bool_]

    def take(self, some: NDArray[np.int64] | NDArray[np.bool_]) -> _Pairs:
        """Return some of the pairs, by index or by a mask."""
        return _Pairs._make(column[some] for column in self)

    def order(self, base: int) -> NDArray[np.int64]:
        """Return numbers (m,) by which candidates are selected. `base` is the number of the first anchor."""
        return self.rank.astype(np.int64) << _NUMBER_BITS | self.anchor - base


class _Limit(NamedTuple):
    """Which candidates of the n rows of a part count."""

    within: NDArray[np.int64]
    """Largest distance (n,)."""
    of_search: Callable[[], Nearest]
    first: int
    """The first row of the part in the search."""

    def wanted(self) -> Nearest:
        """Return the limit, with rows counted from the first one of the part."""
        return self.of_search().from_row(self.first)


class ChosenAnswer(NamedTuple):
    """An answer, and the rows of a search for which it is taken."""

    answer: Answer
    rows: NDArray[np.int64]

    def inside(self, rows: slice) -> ChosenAnswer:
        """Return it for some consecutive rows, counted from the first of them."""
        some = self.rows[slice(*np.searchsorted(self.rows, (rows.start, rows.stop)))]
        return ChosenAnswer(self.answer, some - rows.start)

    def of(self, pages: NDArray[np.int64], ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """Return which of the sorted `pages` of the answer are those of its rows, and their rows. `ids` are
        the pages of all rows."""
        own = ids[self.rows]
        low, high = (np.searchsorted(pages, own, side) for side in ("left", "right"))
        sizes = high - low
        index = np.arange(sizes.sum()) + np.repeat(low - (np.cumsum(sizes) - sizes), sizes)
        return index, np.repeat(self.rows, sizes)

    def pairs(self, ids: NDArray[np.int64]) -> _Pairs:
        """Return the pairs that are listed for its rows."""
        index, row = self.of(self.answer.pairs.page, ids)
        return _Pairs._make((row, *(column[index] for column in self.answer.pairs[1:])))


class MergedSearch:
    """The search of the tables of this process, and of answers about the anchors before them."""

    def __init__(
        self, tail: CandidateSearch, state: State, rule: Rule, answers: Answers, deaths: Deaths
    ) -> None:
        """`tail` searches the anchors from the end of the last segment on. `state` has the records of all
        anchors, and knows which are dead; `deaths` are those up to now."""
        self._tail, self._state, self._rule, self._answers, self._deaths = tail, state, rule, answers, deaths

    def search(
        self, ids: NDArray[np.int64], pages: FingerprintedPages, wanted: Callable[[], Nearest]
    ) -> Iterator[tuple[int, Compared]]:
        """See `CandidateSearch`.

        Raises AwaitedAnswerError if answers are missing or too old, and RefutedAnswerError for one that
        counts what cannot be.
        """
        if not self._answers.segments:
            yield from self._tail.search(ids, pages, wanted)
            return
        chosen = [
            each
            for segment in self._answers.segments
            for each in self._answers.about(ids, segment, self._deaths)
        ]
        for first, part in self._tail.search(ids, pages, wanted):
            some = slice(first, first + len(part.ends))
            own = [each.inside(some) for each in chosen]
            merged = self._with_counts(part, ids[some], own)
            within = self._rule.within(pages.status[some])
            yield first, self._with_pairs(merged, ids[some], own, _Limit(within, wanted, first))

    def _with_counts(self, part: Compared, ids: NDArray[np.int64], chosen: list[ChosenAnswer]) -> Compared:
        """Add the live anchors of segments in the buckets of rows (rule 16)."""
        candidates = part.candidates
        queries = [each.queries for each in candidates.probed]
        keys, words = (np.concatenate([getattr(each, of) for each in queries]) for of in ("keys", "words"))
        tables, counted = keys.shape[1], list[tuple[NDArray[np.int64], ...]]()
        for each in chosen:
            answer, counts = each.answer, each.answer.counts
            index, row = each.of(counts.page, ids)
            bucket, size = counts.bucket[index], counts.size[index]
            if len(bucket) and bucket.max() >= self._rule.buckets:
                raise RefutedAnswerError(
                    f"{answer} counts anchors in bucket {bucket.max()}, which no page has", answer
                )
            of_triples, key = bucket >= tables, np.empty(len(bucket), np.uint64)
            key[~of_triples] = keys[row[~of_triples], bucket[~of_triples]]
            key[of_triples] = keys_of_some(words, row[of_triples], bucket[of_triples] - tables)
            left = self._deaths.since(answer.decided, answer.segment)
            size = size - (np.searchsorted(left, key, "right") - np.searchsorted(left, key))
            if (size < 0).any():
                raise RefutedAnswerError(
                    f"{answer} counts fewer anchors in a bucket than have left it since", answer
                )
            counted.append((row, bucket, size))
        if candidates.bucket_sizes is None or not counted:
            return part
        row, bucket, size = map(np.concatenate, zip(*counted, strict=True))
        sizes, of_tables = candidates.bucket_sizes.copy(), bucket < tables
        np.add.at(sizes, (row[of_tables], bucket[of_tables]), size[of_tables].astype(sizes.dtype))
        triples = _summed(candidates.triples, row[~of_tables], bucket[~of_tables] - tables, size[~of_tables])
        return part._replace(candidates=replace(candidates, bucket_sizes=sizes, triples=triples))

    def _with_pairs(
        self, part: Compared, ids: NDArray[np.int64], chosen: list[ChosenAnswer], limit: _Limit
    ) -> Compared:
        """Add the candidates of segments, and keep those of the least rank of all (rule 18)."""
        if not chosen:
            return part
        parts, candidates, base = list[_Pairs](), part.candidates, self._answers.segments[0].first
        last = np.full(len(ids), _NO_LIMIT)
        for each in chosen:
            listed, (_, cut) = each.pairs(ids), each.of(each.answer.cut, ids)
            parts.append(listed)
            if len(cut):
                of_answer = np.zeros(len(ids), np.int64)
                np.maximum.at(of_answer, listed.row, listed.order(base))
                last[cut] = np.minimum(last[cut], of_answer[cut])
        if not sum(len(each.row) for each in parts):
            return part
        own = candidates.anchor, candidates.distance, part.rank, part.similarity, part.similar
        parts.append(_Pairs(candidates.row, *own))
        pairs = _Pairs._make(map(np.concatenate, zip(*parts, strict=True)))
        returned, alive = len(pairs.row), np.flatnonzero(self._state.tables.is_alive(pairs.anchor))
        # Segments are in order, and the tail is behind them, so pairs are by age in each row.
        pairs = pairs.take(alive[np.argsort(pairs.row[alive], kind="stable")])
        if last.min() < _NO_LIMIT:
            self._refuse_short(pairs.take(pairs.order(base) <= last[pairs.row]), last, ids, limit)
        ends = np.cumsum(np.bincount(pairs.row, minlength=len(ids)))
        if np.diff(ends, prepend=0).max() > self._rule.selected:
            kept = nearest_alive(ends, pairs.anchor, pairs.distance, pairs.rank, limit.wanted())
            pairs = pairs.take(kept)
            ends = np.cumsum(np.bincount(pairs.row, minlength=len(ids)))
        anchors = self._state.anchors(pairs.anchor)
        return Compared(
            candidates=replace(candidates, row=pairs.row, anchor=pairs.anchor, distance=pairs.distance),
            anchors=anchors,
            place=anchors.places(pairs.anchor),
            similarity=pairs.similarity,
            similar=pairs.similar,
            rank=pairs.rank,
            ends=ends,
            returned=returned,
        )

    def _refuse_short(
        self, pairs: _Pairs, last: NDArray[np.int64], ids: NDArray[np.int64], limit: _Limit
    ) -> None:
        """Raise AwaitedAnswerError for a row of which a list is cut, and so many of the list have died that
        some that are not listed may count. None of these comes before the row's `last` (n,), and all `pairs`
        do."""
        alive = limit.wanted().rows_of(pairs.anchor, ALIVE) > pairs.row
        near = alive & (pairs.distance <= limit.within[pairs.row])
        sure = np.bincount(pairs.row[near], minlength=len(ids))
        short = np.flatnonzero((last < _NO_LIMIT) & (sure < self._rule.selected))
        if len(short):
            offset = int(ids[short[0]]) >> INDEX_BITS
            raise AwaitedAnswerError(
                f"too many of the candidates that are listed for a page of journal record {offset} have died "
                "for those of the least rank to be known",
                offset,
            )


def _summed(
    triples: ProbedTriples, row: NDArray[np.int64], triple: NDArray[np.int64], size: NDArray[np.int64]
) -> ProbedTriples:
    """The triples that tables looked into, and further ones of rows; their anchors are added up."""
    cells = np.concatenate([triples.row * TRIPLES + triples.triple, row * TRIPLES + triple])
    cell, place = np.unique(cells, return_inverse=True)
    sizes = np.zeros(len(cell), np.int64)
    np.add.at(sizes, place, np.concatenate([triples.sizes, size]))
    return ProbedTriples(*np.divmod(cell, TRIPLES), sizes)

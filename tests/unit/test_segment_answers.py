"""Answers of segments that are refused, or awaited."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stream.errors import AnswerError, AwaitedAnswerError
from stream.judge.decision.candidates_compared import Compared, FingerprintedPages, TablesSearch
from stream.judge.ids import INDEX_BITS, pack
from stream.judge.judge import Judge
from stream.judge.rule import Rule
from stream.judge.segments import deaths
from stream.judge.segments.answer import Answer, BucketCounts, ListedPairs, Run, Segment
from stream.judge.segments.deaths import Deaths
from stream.judge.segments.merged_search import Answers, MergedSearch
from stream.messages.verdict_options import VerdictOptions
from stream.tables.search.nearest import ALL
from tests.judged_crawls import SCHEME, crowd, entries_of, open_state

RULE = Rule(VerdictOptions(compared=1), SCHEME)
SEGMENT, RUN = Segment(0, 100), Run(7, 9)
PAGE = pack(7, 3)


def pairs_of(*pairs: tuple[int, int], rank: int = 0) -> ListedPairs:
    """Pairs of a page and an anchor, at no distance."""
    page, anchor = np.array(pairs, np.int64).reshape(-1, 2).T
    near = np.full(len(pairs), rank, np.uint8)
    return ListedPairs(page, anchor, near, near, np.full(len(pairs), 9000), np.ones(len(pairs), np.bool_))


def counts_of(*counts: tuple[int, int, int]) -> BucketCounts:
    return BucketCounts(*np.array(counts, np.int64).reshape(-1, 3).T)


def answer_of(
    *pairs: tuple[int, int],
    cut: tuple[int, ...] = (),
    counts: BucketCounts | None = None,
    segment: Segment = SEGMENT,
    decided: int = 0,
) -> Answer:
    listed, none = pairs_of(*pairs), counts or BucketCounts.none()
    return Answer(segment, RUN, decided, 2, listed, np.array(cut, np.int64), none)


@pytest.mark.parametrize(
    ("pairs", "cut", "counts", "message"),
    [
        ([(pack(9, 0), 5)], (), (), r"about journal records \[7, 9\) names page 9.0$"),
        ([], (pack(6, 2),), (), "names page 6.2$"),
        ([], (), [(pack(6, 1), 0, 1)], "names page 6.1$"),
        ([(PAGE, 100)], (), (), r"^the answer of anchors \[0, 100\) about .* names anchor 100$"),
        ([(PAGE, 5), (PAGE, 5)], (), (), "is not in order$"),
        ([(PAGE, 6), (PAGE, 5)], (), (), "is not in order$"),
        ([(PAGE + 1, 5), (PAGE, 6)], (), (), "is not in order$"),
        ([], (), [(PAGE, 1, 1), (PAGE, 0, 1)], "is not in order$"),
        ([(PAGE, 5)], (PAGE,), (), "is cut for page 7.3, but does not list 2$"),
    ],
)
def test_an_answer_names_what_is_in_its_ranges_in_order(
    pairs: list[tuple[int, int]], cut: tuple[int, ...], counts: list[tuple[int, int, int]], message: str
) -> None:
    with pytest.raises(AnswerError, match=message):
        answer_of(*pairs, cut=cut, counts=counts_of(*counts))


@pytest.mark.parametrize("second", [Segment(99, 200), Segment(101, 200)])
def test_segments_abut(second: Segment) -> None:
    with pytest.raises(AnswerError, match=r"anchors \[0, 100\) and anchors \[.*, 200\) do not abut"):
        Answers([SEGMENT, second])


@pytest.mark.parametrize("segment", [Segment(0, 99), Segment(50, 150), Segment(100, 200)])
def test_an_answer_of_a_range_of_its_own_choice_is_refused(segment: Segment) -> None:
    with pytest.raises(AnswerError, match="is of none of the segments in use"):
        Answers([SEGMENT]).add(answer_of(segment=segment))


class Searched:
    """A state with a crowd of anchors, and searches for a page."""

    def __init__(self, path: Path) -> None:
        pages = crowd(3, 300)
        self.entries = entries_of(pages, 3)
        self.state, genesis = open_state(path, RULE.options, memory=1 << 20, generation=64)
        self.judge = Judge(self.state, genesis)
        self.judge.apply(self.entries, self.judge.decide(self.entries).record())
        every = np.arange(self.state.tables.count)
        self.live = every[self.state.tables.is_alive(every)].tolist()
        self.dead = every[~self.state.tables.is_alive(every)]
        self.segment = Segment(0, self.state.tables.count)
        self.deaths = Deaths(RULE, 0)
        died = self.state.anchors(self.dead)
        self.deaths.add(1, self.dead, RULE.table_words(died.fingerprint, died.sketch), died.skipped)

    def search(self, *answers: Answer, sketch: NDArray[np.uint64] | None = None) -> Compared:
        """Search for the page PAGE, by default of minima that no anchor has."""
        given = Answers([self.segment])
        for each in answers:
            given.add(each)
        page = FingerprintedPages(
            np.zeros((1, 1), np.uint64),
            np.arange(32, dtype=np.uint8)[None],
            np.full((1, 7), 2**63 - 1, np.uint64) if sketch is None else sketch,
            np.zeros(1, np.uint8),
        )
        wanted = ALL._replace(most=RULE.selected, within=RULE.within(page.status))
        tail = TablesSearch(self.state.tables, self.state, RULE)
        search = MergedSearch(tail, self.state, RULE, given, self.deaths)
        [(_, compared)] = search.search(np.array([PAGE]), page, lambda: wanted)
        return compared

    def answer(self, *anchors: int, **others: object) -> Answer:
        pairs = [(PAGE, each) for each in anchors]
        return answer_of(*pairs, segment=self.segment, **others)  # type: ignore[arg-type]


@pytest.fixture
def searched(tmp_path: Path) -> Iterator[Searched]:
    made = Searched(tmp_path / "state")
    yield made
    made.state.close()


def anchors_of(compared: Compared) -> list[int]:
    listed: list[int] = compared.candidates.anchor.tolist()
    return listed


def test_a_range_or_record_without_an_answer_is_awaited(searched: Searched) -> None:
    with pytest.raises(AwaitedAnswerError, match=r"no answer of anchors \[0, .* journal record 7") as awaited:
        searched.search()
    assert awaited.value.offset == 7
    beside = replace(searched.answer(), run=Run(8, 20))
    with pytest.raises(AwaitedAnswerError):
        searched.search(beside)
    assert anchors_of(searched.search(beside, searched.answer())) == []


def test_records_are_answered_up_to_the_first_gap_in_whatever_order_answers_come(
    searched: Searched,
) -> None:
    rng, other = random.Random(1), Segment(searched.segment.end, searched.segment.end + 5)
    for _ in range(200):
        answers, pages = Answers([searched.segment, other]), {searched.segment: set[int](), other: set[int]()}
        for _ in range(rng.randrange(12)):
            segment, decided = rng.choice(list(pages)), rng.choice([1, 1, 2])  # none knows what died since 2
            first, until = sorted(rng.sample(range(40), 2))
            run = Run.between(*(pack(each // 4, each % 4 << INDEX_BITS - 2) for each in (first, until)))
            answers.add(replace(answer_of(segment=segment, decided=decided), run=run))
            pages[segment] |= set(range(first, until)) if decided == 1 else set()
        offset, end = sorted(rng.sample(range(10), 2))
        gaps = [next(each for each in range(offset * 4, 99) if each not in of) // 4 for of in pages.values()]
        until, segment_of = answers.answered_until(offset, end, searched.deaths)
        assert min(until, end) == min(*gaps, end)
        assert until >= end or segment_of == list(pages)[gaps.index(min(gaps))]


def test_a_record_is_answered_once_all_of_its_pages_are(searched: Searched) -> None:
    before = replace(searched.answer(), run=Run(7, 7, 0, 3))
    behind = replace(searched.answer(searched.live[0]), run=Run(7, 9, 3, 0))
    for given, until in (([behind], 7), ([before], 7), ([behind, before], 9), ([before, behind], 9)):
        answers = Answers([searched.segment])
        for each in given:
            answers.add(each)
        assert answers.answered_until(7, 9, searched.deaths)[0] == until
    assert anchors_of(searched.search(before, behind)) == searched.live[:1]
    with pytest.raises(AwaitedAnswerError):
        searched.search(before)


def test_an_answer_as_of_an_unknown_position_does_not_count(searched: Searched) -> None:
    """It is of deaths that are not applied yet, or older than those that are remembered."""
    with pytest.raises(AwaitedAnswerError):
        searched.search(searched.answer(decided=2))
    assert anchors_of(searched.search(searched.answer(searched.live[0], decided=0))) == searched.live[:1]
    searched.deaths.forget(1)
    with pytest.raises(AwaitedAnswerError):
        searched.search(searched.answer(searched.live[0], decided=0))
    assert searched.deaths.position == 1


def test_positions_are_forgotten_though_few_anchors_die(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a judge that runs for weeks would remember each of its decisions."""
    monkeypatch.setattr(deaths, "MOST_POSITIONS", 3)
    monkeypatch.setattr(deaths, "MOST_DEATHS", 5)
    known, words = Deaths(RULE, 0), np.zeros((9, 1), np.uint64)
    for position in range(1, 9):
        known.add(position, np.zeros(0, np.int64), words[:0], words[:0, 0])
    assert [each for each in range(12) if known.knows(each)] == [5, 6, 7, 8]
    for position in (9, 10):  # the last ones are known, however many they are
        known.add(position, np.arange(9), words, words[:, 0])
    assert [each for each in range(12) if known.knows(each)] == [9, 10]
    known.add(11, np.arange(1), words[:1], words[:1, 0])
    assert [each for each in range(12) if known.knows(each)] == [10, 11]


def test_of_several_answers_the_newest_counts_and_of_these_the_longest(searched: Searched) -> None:
    one, two, three = (searched.answer(each, decided=each > searched.live[0]) for each in searched.live[:3])
    longer = replace(three, most=3)
    for order in ((one, two, longer), (longer, two, one), (two, longer, one, two)):
        assert anchors_of(searched.search(*order)) == [searched.live[2]]


def test_the_dead_are_taken_from_lists(searched: Searched) -> None:
    dead, live = int(searched.dead[0]), searched.live[:1]
    assert anchors_of(searched.search(searched.answer(*sorted([dead, *live])))) == live


def test_a_cut_list_of_which_too_many_died_is_awaited(searched: Searched) -> None:
    dead, live = int(searched.dead[0]), searched.live
    with pytest.raises(AwaitedAnswerError, match="too many of the candidates") as awaited:
        searched.search(searched.answer(*sorted([dead, live[0]]), cut=(PAGE,)))
    assert awaited.value.offset == 7
    longer = [dead, *live[:2]]
    made = replace(searched.answer(*sorted(longer)), most=3, cut=np.array([PAGE]))
    assert anchors_of(searched.search(made)) == live[:2]


def test_counts_fewer_than_have_died_are_refused(searched: Searched) -> None:
    died = searched.state.anchors(searched.dead[:1])
    key = RULE.design().keys(RULE.table_words(died.fingerprint, died.sketch))[0, 3]
    left = int(np.count_nonzero(searched.deaths.since(0, searched.segment) == key))
    assert left > 0
    for size in (left, left - 1):
        answer = searched.answer(counts=counts_of((PAGE, 3, size)))
        if size == left:
            searched.search(answer, sketch=died.sketch)
        else:
            with pytest.raises(AnswerError, match="counts fewer anchors in a bucket than have left it since"):
                searched.search(answer, sketch=died.sketch)


@pytest.mark.parametrize("bucket", [40, 100])
def test_a_bucket_that_no_page_has_is_refused(searched: Searched, bucket: int) -> None:
    with pytest.raises(AnswerError, match=f"in bucket {bucket}, which no page has"):
        searched.search(searched.answer(counts=counts_of((PAGE, bucket, 1))))

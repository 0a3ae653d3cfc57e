"""An answer about pages that have very many candidates each has a bounded number of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stream.judge.judge import Judge
from stream.judge.segments import answering
from stream.judge.segments.answer import Answer, Run, Segment
from stream.judge.segments.answering import Answerer
from stream.messages.verdict_options import VerdictOptions
from stream.roles.prober.undecided_pages import RecordPages, UndecidedPages
from stream.tables import tables
from tests.judged_crawls import crowd, entries_of, judge_at_once, open_state
from tests.split_search import answers_about

PAIRS = 300
"""Most pairs of a part of a search."""


class Crowd:
    """Journal records whose pages are near the same anchors, without a limit of those that are compared."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tables, "PAIRS_AT_ONCE", PAIRS)
        options = VerdictOptions(compared=0)
        self.state, genesis = open_state(directory, options, memory=1 << 20, generation=64)
        entries = entries_of(crowd(3, 400), 3)
        judge = Judge(self.state, genesis)
        judge_at_once(judge, entries, 1)
        self.segment = Segment(0, self.state.tables.count)
        self.answerer = Answerer(self.segment, self.state.tables, self.state, judge.rule)
        self.pages = UndecidedPages(judge.rule)
        for entry in entries:
            self.pages.add(RecordPages.of(entry))
        self.run = Run(entries[0].offset, entries[-1].offset + 1)

    def answer(self, run: Run) -> Answer:
        pages = self.pages.of(run)
        return self.answerer.answer(run, pages.ids, pages.pages, 1, pages.keys)


@pytest.fixture
def crowded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crowd]:
    made = Crowd(tmp_path / "state", monkeypatch)
    yield made
    made.state.close()


@pytest.mark.parametrize("most", [1, 100, 1000])
def test_an_answer_ends_once_it_has_many_pairs(
    crowded: Crowd, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, pages, _ = crowded.pages.of(crowded.run)
    whole = crowded.answer(crowded.run)
    assert whole.run == crowded.run
    of_page = np.unique(whole.pairs.page, return_counts=True)[1].max()
    assert len(whole.pairs.page) > 4000
    monkeypatch.setattr(answering, "MOST_ENTRIES", most)
    asked = list[int]()

    def answer(run: Run, *of_run: object) -> Answer:
        asked.append(crowded.pages.rows(run))
        assert np.array_equal(crowded.pages.of(run)[0], of_run[0])  # type: ignore[arg-type]
        return crowded.answer(run)

    parts = answers_about(crowded.run, ids, pages, answer)
    assert asked[0] == len(ids)
    assert asked == sorted(set(asked), reverse=True), "each is about some pages"
    entries = [len(part.pairs.page) + len(part.counts.page) for part in parts]
    assert max(len(part.pairs.page) for part in parts) < most + max(PAIRS, of_page)
    assert min(entries[:-1]) >= most
    for kind in ("pairs", "counts"):
        columns = zip(*(getattr(part, kind) for part in parts), strict=True)
        for of_parts, column in zip(columns, getattr(whole, kind), strict=True):
            np.testing.assert_array_equal(np.concatenate(of_parts), column)

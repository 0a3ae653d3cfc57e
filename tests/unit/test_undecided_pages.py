"""Pages of a run are put together once for all segments."""

from __future__ import annotations

import numpy as np

from stream.fingerprint.scheme import Scheme
from stream.judge.decision.candidates_compared import FingerprintedPages
from stream.judge.ids import pack
from stream.judge.rule import Rule
from stream.judge.segments.answer import Run
from stream.messages.verdict_options import VerdictOptions
from stream.roles.prober.undecided_pages import RecordPages, UndecidedPages

SCHEME = Scheme()
RULE = Rule(VerdictOptions(), SCHEME)
ROWS = 3


def undecided(records: int) -> UndecidedPages:
    rng, pages = np.random.default_rng(1), UndecidedPages(RULE)
    for offset in range(records):
        columns = FingerprintedPages(
            rng.integers(0, 1 << 63, (ROWS, 1), np.uint64),
            np.zeros((ROWS, 0), np.uint8),
            rng.integers(0, 1 << 63, (ROWS, SCHEME.sketch_bytes // 8), np.uint64),
            np.zeros(ROWS, np.uint8),
        )
        pages.add(RecordPages(offset, pack(offset, 0) + np.arange(ROWS), columns, ROWS))
    return pages


def test_a_run_has_the_pages_of_its_records_and_their_keys() -> None:
    pages = undecided(4)
    whole = pages.of(Run(0, 4))
    for run in (Run(1, 3), Run(0, 2), Run(3, 4)):
        some, found = slice(run.start * ROWS, run.end * ROWS), pages.of(run)
        np.testing.assert_array_equal(found.ids, whole.ids[some])
        for column, all_of_it in zip(found.pages, whole.pages, strict=True):
            np.testing.assert_array_equal(column, all_of_it[some])
        words = RULE.table_words(found.pages.fingerprint, found.pages.sketch)
        np.testing.assert_array_equal(found.keys.words, words)
        np.testing.assert_array_equal(found.keys.buckets, RULE.design().keys(words))


def test_a_run_is_put_together_once_for_several_segments() -> None:
    pages = undecided(4)
    first = pages.of(Run(1, 3))
    assert pages.of(Run(1, 3)) is first
    pages.drop(1)
    assert pages.of(Run(1, 3)) is first


def test_a_run_whose_first_records_are_decided_is_not_kept() -> None:
    pages = undecided(4)
    pages.of(Run(1, 3))
    pages.drop(2)
    np.testing.assert_array_equal(pages.of(Run(1, 3)).ids, pack(2, 0) + np.arange(ROWS))

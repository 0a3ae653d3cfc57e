from __future__ import annotations

from stream.judge.batch_rows import BATCH_SECONDS, LEAST_ROWS, BatchRows


def test_a_slow_batch_makes_the_next_one_smaller_and_quick_ones_larger_again() -> None:
    size = BatchRows(32_768)
    size.note(32_768, 4 * BATCH_SECONDS)
    assert size.limit == 8192
    for _ in range(10):
        size.note(size.limit, BATCH_SECONDS / 10)
    assert size.limit == 32_768


def test_a_batch_always_has_some_rows_and_never_more_than_the_setting() -> None:
    size = BatchRows(32_768)
    size.note(512, 60.0)
    assert size.limit == LEAST_ROWS
    few = BatchRows(16)
    few.note(16, 60.0)
    few.note(16, 0.0)
    assert few.limit == 16


def test_a_batch_that_was_short_for_want_of_pages_says_nothing() -> None:
    size = BatchRows(32_768)
    size.note(1, BATCH_SECONDS / 2)
    assert size.limit == 32_768

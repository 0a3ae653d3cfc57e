"""How many rows the next batch has."""

from __future__ import annotations

import pytest

from stream.judge.batch_rows import BATCH_SECONDS, LEAST_ROWS, BatchRows


@pytest.mark.parametrize(
    ("most", "rows", "seconds", "limit"),
    [
        (32_768, None, [4 * BATCH_SECONDS], 8192),
        (32_768, None, [4 * BATCH_SECONDS, *[BATCH_SECONDS / 10] * 10], 32_768),
        (32_768, 512, [60.0], LEAST_ROWS),
        (16, None, [60.0, 0.0], 16),
        (32_768, 1, [BATCH_SECONDS / 2], 32_768),  # it was short for want of pages
    ],
)
def test_a_slow_batch_makes_the_next_one_smaller_and_quick_ones_larger(
    most: int, rows: int | None, seconds: list[float], limit: int
) -> None:
    size = BatchRows(most)
    for each in seconds:
        size.note(rows or size.limit, each)
    assert size.limit == limit

"""Rule 18: a page is compared with its nearest candidates alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from stream.messages.verdict_options import VerdictOptions
from tests.judged_crawls import (
    crowd,
    entries_of,
    expected,
    judge_all,
    judging,
    oracle_of,
)


@pytest.mark.parametrize("compared", [1, 3])
@pytest.mark.parametrize("options", [VerdictOptions(), VerdictOptions.paper()], ids=["verified", "strict"])
def test_rule_18_pages_are_compared_with_the_nearest_alone(
    tmp_path: Path, compared: int, options: VerdictOptions
) -> None:
    options, pages = structs.replace(options, compared=compared), crowd(compared, 250)
    entries = entries_of(pages, compared)
    want = expected(oracle_of(options), pages)
    with judging(tmp_path / "state", options, memory=64 << 20) as judge:
        assert judge_all(judge, entries, compared) == want
    limitless = expected(oracle_of(structs.replace(options, compared=0)), pages)
    assert (want != limitless) == (not options.strict)

"""Rule 18: a page is compared with its nearest candidates alone."""

from __future__ import annotations

import random
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
    packed_minima,
)
from tests.oracle import OraclePage


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


def test_rule_18_only_pages_with_more_candidates_than_are_compared_count_as_cut(tmp_path: Path) -> None:
    """Five pages that share every bucket and are not alike: the last one alone has more than three before
    it."""
    rng, end, pages = random.Random(1), 900 << 192 | packed_minima([7] * 10) << 256, list[OraclePage]()
    for number in range(5):
        sketch = (rng.getrandbits(192) | end).to_bytes(96, "little")
        pages.append(OraclePage(None, f"http://host/{number}", 0, sketch))
    entries = entries_of(pages, 1, sizes=(1,))
    for at_once in (1, 5):
        cut = 0
        with judging(tmp_path / f"{at_once}", VerdictOptions(compared=3)) as judge:
            for start in range(0, len(entries), at_once):
                decided = judge.decide(entries[start : start + at_once])
                cut += decided.crowding["cut_lists"]
                judge.apply(decided.entries, decided.record(), start)
        assert cut == 1, at_once

"""Rule 18: a page is compared with its nearest candidates alone."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from stream.judge.query import matching_anchors
from stream.messages.verdict_options import VerdictOptions
from tests.judged_crawls import (
    crowd,
    entries_of,
    expected,
    judge_all,
    judging,
    oracle_of,
    packed_minima,
    rows_of,
    templates,
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


@pytest.mark.parametrize("seed", [0, 2])
def test_rule_18_a_look_up_names_what_the_judge_would(seed: int, tmp_path: Path) -> None:
    """Pages of templates, which look into reserves and have more candidates than are compared."""
    options = VerdictOptions(bucket_cap=4, compared=2, similarity="0.7")
    pages = [replace(page, url=f"http://h/{place}") for place, page in enumerate(templates(seed, 400))]
    found = 0
    with judging(tmp_path / "state", options) as judge:
        for start, entry in enumerate(entries_of(pages, 1, sizes=(1,))):
            rows = rows_of(pages[start - 1 : start] if start else [])
            named = [each["url"] for matches in matching_anchors(judge, rows) for each in matches[:1]]
            decided = judge.decide([entry])
            assert named == [each.duplicate_of.url for each in decided.verdict_records() if each.duplicate_of]
            judge.apply([entry], decided.record(), start)
            found += len(named)
    assert found > 50

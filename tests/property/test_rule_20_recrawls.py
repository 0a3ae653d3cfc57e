"""Rule 20: a page like one of the last baselines of its URL is a recrawl."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from stream.messages.verdict_options import VerdictOptions
from tests.judged_crawls import entries_of, expected, flips, judge_all, judging, oracle_of


@pytest.mark.parametrize("baselines", [1, 2, 3])
def test_rule_20_a_page_like_one_of_its_urls_last_baselines_is_a_recrawl(
    tmp_path: Path, baselines: int
) -> None:
    options, pages = VerdictOptions(baselines=baselines), flips(baselines, 300, 5)
    entries = entries_of(pages, baselines)
    want = expected(oracle_of(options), pages)
    with judging(tmp_path / "state", options, memory=64 << 20) as judge:
        assert judge_all(judge, entries, baselines) == want
    changed = sum(change == "changed" for _, _, change, *_ in want)
    fewer = expected(oracle_of(VerdictOptions(baselines=baselines + 1)), pages)
    assert sum(change == "changed" for _, _, change, *_ in fewer) < changed


def test_rule_20_a_url_that_flips_between_two_pages_adds_no_anchor(tmp_path: Path) -> None:
    pages = flips(3, 300, 2)
    with judging(tmp_path / "state") as judge:
        found = judge_all(judge, entries_of(pages, 3), 3)
    urls = {page.url for page in pages}
    assert sum(verdict != "recrawl" for _, verdict, *_ in found) <= 2 * len(urls)


def test_rule_20_in_strict_mode_the_largest_distance_still_makes_a_recrawl(tmp_path: Path) -> None:
    options, (page, *_) = VerdictOptions.paper(), flips(1, 30, 1)
    for apart, verdict in ((options.within, "recrawl"), (options.within + 1, "unique")):
        other = dataclasses.replace(page, fingerprint=page.fingerprint ^ (1 << apart) - 1)
        for seed in range(3):  # in one batch and in two
            with judging(tmp_path / f"{apart} {seed}", options) as judge:
                found = judge_all(judge, entries_of([page, other], seed), seed)
            assert [each[1] for each in found] == ["unique", verdict]

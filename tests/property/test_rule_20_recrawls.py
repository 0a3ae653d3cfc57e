"""Rule 20: a page like one of the last baselines of its URL is a recrawl."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from msgspec import structs

from stream.judge.judge import Judge
from stream.messages.verdict_options import VerdictOptions
from tests.judged_crawls import (
    OPTIONS,
    check_deciding_ahead,
    entries_of,
    expected,
    flips,
    judge_all,
    open_state,
    oracle_of,
    redelivered,
    search_few_rows,
)


@pytest.mark.parametrize("baselines", [1, 2, 3])
@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[1], OPTIONS[7]])
@pytest.mark.parametrize("memory", [64 << 20, 0])
def test_rule_20_a_page_like_one_of_its_urls_last_baselines_is_a_recrawl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: VerdictOptions, baselines: int, memory: int
) -> None:
    options = structs.replace(options, baselines=baselines)
    pages = flips(baselines, 400, 5)
    entries = redelivered(entries_of(pages, baselines), pages, baselines)
    want = expected(oracle_of(options), pages)
    found = []
    for cut in (1, 2):
        if cut == 2:
            search_few_rows(monkeypatch)
        state, genesis = open_state(tmp_path / str(cut), options, memory=memory, generation=64)
        try:
            found.append(judge_all(Judge(state, genesis), entries, cut))
        finally:
            state.close()
    assert found[0] == found[1] == want
    check_deciding_ahead(tmp_path, options, entries, 5, memory=memory, generation=64)
    changed = sum(change == "changed" for _, _, change, *_ in want)
    fewer = expected(oracle_of(structs.replace(options, baselines=baselines + 1)), pages)
    assert sum(change == "changed" for _, _, change, *_ in fewer) < changed


def test_rule_20_pages_without_a_url_key_share_no_baselines(tmp_path: Path) -> None:
    pages = flips(7, 300, 2)
    some = set(sorted({page.url for page in pages})[:8])
    pages = [dataclasses.replace(page, url=None) if page.url in some else page for page in pages]
    entries = entries_of(pages, 7)
    want = expected(oracle_of(VerdictOptions()), pages)
    state, genesis = open_state(tmp_path / "state", VerdictOptions(), memory=1 << 20, generation=64)
    try:
        found = judge_all(Judge(state, genesis), entries, 7)
    finally:
        state.close()
    assert found == want
    changes = [change for page, (_, _, change, *_) in zip(pages, found, strict=True) if page.url is None]
    assert len(changes) > 50
    assert set(changes) == {"new"}


def test_rule_20_a_url_that_flips_between_two_pages_adds_no_anchor(tmp_path: Path) -> None:
    pages = flips(3, 300, 2)
    state, genesis = open_state(tmp_path / "state", VerdictOptions(), memory=1 << 20, generation=64)
    try:
        found = judge_all(Judge(state, genesis), entries_of(pages, 3), 3)
    finally:
        state.close()
    urls = {page.url for page in pages}
    assert sum(verdict != "recrawl" for _, verdict, *_ in found) <= 2 * len(urls)

"""Rule 18: a page is compared with its nearest candidates alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from msgspec import structs

from stream.fingerprint.scheme import Scheme
from stream.messages.verdict_options import VerdictOptions
from tests.judged_crawls import (
    crowd,
    entries_of,
    expected,
    judge_all,
    judging,
    oracle_of,
    search_as_for_spam,
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


@pytest.mark.parametrize(("compared", "memory"), [(1, 0), (3, 64 << 20)])
def test_rule_18_what_is_too_far_for_a_page_takes_no_place_of_what_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compared: int, memory: int
) -> None:
    """Anchors beyond the distance of ordinary pages, and within that of short ones."""
    options = VerdictOptions(distance=4, short_distance=9, compared=compared)
    scheme = Scheme(sketch_bins=192, short_tokens=20)
    pages = [
        dataclasses.replace(page, status=3) if number % 3 == 0 else page
        for number, page in enumerate(crowd(compared, 300))
    ]
    entries = entries_of(pages, compared, scheme)
    want = expected(oracle_of(options), pages)
    search_as_for_spam(monkeypatch)
    with judging(tmp_path / "state", options, memory=memory, scheme=scheme) as judge:
        assert judge_all(judge, entries, compared) == want

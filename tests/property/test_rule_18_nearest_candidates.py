"""Rule 18: a page is compared with its nearest candidates alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from msgspec import structs

from stream.fingerprint.scheme import Scheme
from stream.judge.judge import Judge
from stream.messages.verdict_options import VerdictOptions
from tests.judged_crawls import (
    crowd,
    entries_of,
    expected,
    judge_all,
    open_state,
    oracle_of,
    redelivered,
    search_as_for_spam,
)


@pytest.mark.parametrize("compared", [1, 2, 3, 12])
@pytest.mark.parametrize(
    ("width", "options"),
    [
        (64, VerdictOptions()),
        (64, VerdictOptions(bucket_cap=2)),
        (64, VerdictOptions(keys="fingerprint", flip_bits=3, flips=2, bucket_cap=4)),
        (128, VerdictOptions()),
        (64, VerdictOptions.paper()),
    ],
)
@pytest.mark.parametrize("memory", [64 << 20, 0])
def test_rule_18_pages_are_compared_with_the_nearest_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compared: int,
    width: int,
    options: VerdictOptions,
    memory: int,
) -> None:
    options = structs.replace(options, compared=compared)
    scheme = Scheme(sketch_bins=192, width=width)  # type: ignore[arg-type]
    pages = crowd(compared, 300, width=width)
    entries = redelivered(entries_of(pages, compared, scheme), pages, compared)
    want = expected(oracle_of(options), pages)
    found = []
    for cut in (1, 2):
        if cut == 2:  # as spam is searched for
            search_as_for_spam(monkeypatch)
        state, genesis = open_state(tmp_path / str(cut), options, memory=memory, generation=64, scheme=scheme)
        try:
            found.append(judge_all(Judge(state, genesis), entries, cut))
        finally:
            state.close()
    assert found[0] == found[1] == want
    limitless = expected(oracle_of(structs.replace(options, compared=0)), pages)
    if compared < 12:
        assert (want != limitless) == (not options.strict)


@pytest.mark.parametrize("compared", [1, 3, 12])
@pytest.mark.parametrize("memory", [64 << 20, 0])
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
    state, genesis = open_state(tmp_path / "state", options, memory=memory, generation=64, scheme=scheme)
    try:
        assert judge_all(Judge(state, genesis), entries, compared) == want
    finally:
        state.close()

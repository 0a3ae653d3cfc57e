"""The judge, with candidates from answers of segments, against the oracle."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from stream.fingerprint.scheme import Scheme
from stream.judge.judge import Judge
from stream.messages.verdict_options import VerdictOptions
from stream.tables.store import anchors
from tests.judged_crawls import (
    OPTIONS,
    SCHEME,
    crawl,
    crowd,
    entries_of,
    expected,
    expected_in_turns,
    judge_all,
    mirrors,
    number_late,
    open_state,
    oracle_of,
    redelivered,
    search_as_for_spam,
    templates,
)
from tests.oracle import OraclePage
from tests.split_search import SplitSearch


@pytest.fixture(autouse=True)
def tables_begin_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only at a whole chunk of the anchor log."""
    monkeypatch.setattr(anchors, "CHUNK", 1)


def check(
    directory: Path,
    pages: list[OraclePage],
    options: VerdictOptions,
    *,
    scheme: Scheme = SCHEME,
    late: bool = False,
) -> Counter[str]:
    """Judge pages with split tables: verdicts are the oracle's. Returns what happened."""
    seed = zlib.crc32(f"{options.id} {scheme.width} {late}".encode())
    entries = redelivered(entries_of(pages, seed, scheme, sizes=(1, 3, 12)), pages, seed)
    oracle = oracle_of(options, scheme.width)
    if late:
        number_late(oracle)
    if options.lifetime:
        entries = [replace(entry, time=10**12 + 15_000 * at) for at, entry in enumerate(entries)]
        want = expected_in_turns(oracle, pages, entries)
    else:
        want = expected(oracle, pages)
    state, genesis = open_state(
        directory / "state", options, memory=1 << 20, generation=64, scheme=scheme, late=late
    )
    split = SplitSearch(directory / "ranges", state, genesis, seed)
    try:
        found = judge_all(Judge(state, genesis, split), entries, seed)
    finally:
        split.close()
        state.close()
    assert [(f, w) for f, w in zip(found, want, strict=True) if f != w] == []
    assert sum(split.seen[f"{count} segments"] for count in range(2, 6)) > 2, split.seen
    assert split.seen["stale"] > 10, split.seen
    return split.seen


@pytest.mark.parametrize("options", OPTIONS)
def test_verdicts_do_not_depend_on_how_anchors_are_split(tmp_path: Path, options: VerdictOptions) -> None:
    check(tmp_path, crawl(17, 450, dense=True, skew=0.4), options)


@pytest.mark.parametrize("options", [VerdictOptions(bucket_cap=1), VerdictOptions(bucket_cap=2, compared=3)])
def test_nor_where_templates_fill_triples(tmp_path: Path, options: VerdictOptions) -> None:
    check(tmp_path, templates(7, 700), options)


@pytest.mark.parametrize("compared", [1, 3])
@pytest.mark.parametrize("spam", [False, True])
def test_nor_where_lists_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compared: int, spam: bool
) -> None:
    if spam:
        search_as_for_spam(monkeypatch)
    # Few URLs, so that anchors die soon, and lists of earlier decisions have too few that are alive.
    pages = [replace(page, url=f"http://host/{at * 7 % 60}") for at, page in enumerate(crowd(5, 700))]
    seen = check(tmp_path, pages, VerdictOptions(compared=compared))
    assert seen["cut"] > 100, seen
    assert seen["awaited"] > 5 or spam, seen  # whose threads come in any order


def test_nor_where_clusters_end(tmp_path: Path) -> None:
    check(tmp_path, mirrors(3, 700), VerdictOptions(bucket_cap=4))


@pytest.mark.parametrize(
    "options", [VerdictOptions(lifetime=600, bucket_cap=2), VerdictOptions(lifetime=600, compared=1)]
)
def test_nor_where_pages_expire(tmp_path: Path, options: VerdictOptions) -> None:
    seen = check(tmp_path, crawl(9, 700, dense=False, skew=0.4), options)
    assert seen["expired"] > 50, seen


@pytest.mark.parametrize(
    ("width", "options"),
    [
        (128, VerdictOptions(distance=28, bucket_cap=2)),
        (128, VerdictOptions(distance=28, compared=2)),
        (32, VerdictOptions(distance=7)),
        (32, VerdictOptions.paper()),
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_nor_with_fingerprints_of_any_width(
    tmp_path: Path, width: int, options: VerdictOptions, late: bool
) -> None:
    pages = crawl(width, 450, dense=True, skew=0.2, width=width)
    scheme = Scheme(sketch_bins=192, width=width)  # type: ignore[arg-type]
    check(tmp_path, pages, options, scheme=scheme, late=late)

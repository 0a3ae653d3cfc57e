"""What `neardup explain` says of a page and a state directory is what the judge decides there."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from itertools import cycle, product
from pathlib import Path

import pytest
from msgspec import structs

from stream.fingerprint.row import Status
from stream.fingerprint.scheme import Scheme
from stream.judge.explain.stored_pages import StoredPages
from stream.judge.ids import INDEX_BITS
from stream.messages.verdict_options import VerdictOptions
from stream.page_rows.page_fingerprinter import PageFingerprinter
from tests.judged_crawls import (
    crawl,
    crowd,
    entries_of,
    expected,
    judge_all,
    judging,
    oracle_of,
    side,
)
from tests.night import cases
from tests.oracle import Oracle, OraclePage


def oracle_places(oracle: Oracle, page: OraclePage) -> list[object]:
    """The ids of all candidates within the distance, in the order in which they are compared."""
    within = [
        each.page
        for each in oracle.candidates(page)
        if (each.page.fingerprint ^ page.fingerprint).bit_count() <= oracle.within(page)
    ]
    return [each.id for each in sorted(within, key=lambda each: oracle.rank(page, each))]


COMPARED = (0, 2, 12)
RULES = [
    (64, VerdictOptions()),
    (64, VerdictOptions(bucket_cap=2, baselines=3)),
    (128, VerdictOptions(bucket_cap=4)),
    (64, VerdictOptions.paper()),
]
"""Widths and options."""


@pytest.mark.parametrize(
    ("compared", "rule"), cases(product(COMPARED, RULES), by_day=[*zip(cycle(COMPARED), RULES, strict=False)])
)
def test_a_page_that_comes_next_gets_the_verdict_that_is_explained(
    tmp_path: Path, compared: int, rule: tuple[int, VerdictOptions]
) -> None:
    width, options = rule
    options, scheme = structs.replace(options, compared=compared), Scheme(sketch_bins=192, width=width)  # type: ignore[arg-type]
    pages = crowd(compared, 200, width=width) + crawl(5, 200, dense=True, width=width)
    random.Random(compared).shuffle(pages)
    pages = [each for each in pages if each.status == 0]
    stored, coming = pages[:250], pages[250:290]
    oracle = oracle_of(options)
    with judging(tmp_path / "state", options, scheme=scheme) as judge:
        entries = entries_of(pages, compared, scheme)
        last = next(i for i, each in enumerate(entries) if sum(len(e.rows) for e in entries[: i + 1]) >= 250)
        stored = pages[: sum(len(each.rows) for each in entries[: last + 1])]
        coming = pages[len(stored) : len(stored) + 40]
        judge_all(judge, entries[: last + 1], compared)
    expected(oracle, stored)
    urls = {page.id: page.url for page in stored}
    places = named = 0
    with StoredPages(tmp_path / "state", PageFingerprinter(scheme), options) as index:
        for page in coming:
            before, want = oracle, copy.deepcopy(oracle).judge(page)
            pair = index.pair(side(page), side(page))
            assert (pair.verdict, pair.named) == (want.verdict, urls.get(want.other))
            assert pair.similarity in (want.similarity and want.similarity / 10_000, None)
            nearest = pair.nearest and (pair.nearest.url, round(pair.nearest.similarity * 10_000))
            assert nearest == (want.nearest and (urls[want.nearest], want.nearest_similarity))
            named += nearest is not None
            if want.verdict == "recrawl":
                continue
            if want.superseded is not None:
                before = copy.deepcopy(oracle)
                before.leave(before.baselines[page.url][0][0])
            order = oracle_places(before, page)
            for place, number in enumerate(order[:3] + order[-1:]):
                anchor = index.side(f"abababab.{number >> INDEX_BITS}.{number & (1 << INDEX_BITS) - 1}")
                candidacy = index.pair(anchor, side(page)).candidacy
                if anchor.url == page.url:
                    assert candidacy is None
                    continue
                assert candidacy.candidates == len(order)
                assert candidacy.place == order.index(number) + 1
                assert candidacy.compared == (
                    min(len(order), compared) if compared and not options.strict else len(order)
                )
                places = max(places, place)
    assert places >= 2, "some pages are compared with several anchors"
    assert not (named and options.strict)
    assert named or options.strict or options.baselines > 2, "of some pages an anchor is nearly alike"


@pytest.mark.parametrize(
    ("options", "short"),
    [
        (VerdictOptions(bucket_cap=4), 0),
        (VerdictOptions(mode="strict", distance=1, short_distance=3), 20),
    ],
)
def test_a_stored_duplicate_has_its_anchor_among_its_candidates_or_too_little_is_known(
    options: VerdictOptions, short: int, tmp_path: Path
) -> None:
    """A state does not say which pages are short."""
    scheme = Scheme(sketch_bins=192, short_tokens=short)
    pages = [each for each in crawl(9, 300, dense=True) if each.status == 0]
    pages = [replace(each, status=int(Status.SHORT if short else Status.READY)) for each in pages]
    with judging(tmp_path / "state", options, scheme=scheme) as judge:
        found = judge_all(judge, entries_of(pages, 9, scheme), 9)
    explained = 0
    with StoredPages(tmp_path / "state", PageFingerprinter(scheme), options) as index:
        for number, verdict, _, cluster, *_ in found:
            if verdict != "duplicate":
                continue
            page, anchor = (
                index.side(f"abababab.{each >> INDEX_BITS}.{each & (1 << INDEX_BITS) - 1}")
                for each in (number, cluster)
            )
            pair = index.pair(anchor, page)
            if pair.candidacy is not None and not pair.anchor.superseded:
                assert pair.candidacy.place is not None
                explained += 1
    assert bool(explained) == (not short)

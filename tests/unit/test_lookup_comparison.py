"""The dashboard compares two pasted pages, whatever is in them, and says why where it cannot."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import jsonschema
import msgspec
import pytest
import pytest_asyncio

from stream.children.child import ChildConfiguration
from stream.children.pool import ChildPool
from stream.dashboard.answers import Comparison
from stream.dashboard.lookup.lookup import COMPARER, compare_pages
from stream.dashboard.web.api import LOOKUP_BYTES
from stream.dashboard.web.openapi import document
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.judge.explain.shingle_diff import LONGEST_OWN, MOST_RUNS, TextRun
from stream.judge.rule import Rule
from stream.messages.verdict_options import VerdictOptions
from tests.night import cases
from tests.waiting import HANG_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="module")

RULE = Rule(VerdictOptions(), Scheme())
WORDS = "the harbour authority will repair the old lighthouse at the north pier before the winter storms come"
LONG = " ".join(f"{WORDS} in year {n}" for n in range(5))


def configuration(fingerprinter: str = COMPARER) -> ChildConfiguration:
    return ChildConfiguration(
        scheme=Scheme(),
        seed=PUBLIC_SEED,
        page_bytes=16 << 20,
        memory=2 << 30,
        deadline=10.0,
        fingerprinter=fingerprinter,
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[ChildPool]:
    async with asyncio.timeout(HANG_SECONDS), ChildPool(1, configuration()) as pool:
        yield pool


async def comparison(pool: ChildPool, other: dict[str, Any], page: dict[str, Any]) -> Comparison:
    values = [json.dumps({"url": "http://a.example/", **each}).encode() for each in (other, page)]
    (row,) = await pool.fingerprint([values[1]])
    found = await compare_pages(pool, RULE, values[0], (values[1], row))
    contract = document()["components"]
    schema = {"$ref": "#/components/schemas/Comparison", "components": contract}
    jsonschema.validate(json.loads(msgspec.json.encode(found)), schema, jsonschema.Draft202012Validator)
    return found


async def test_two_texts_are_compared_like_an_anchor_and_a_page(pool: ChildPool) -> None:
    found = await comparison(pool, {"text": LONG}, {"html": f"<p>{LONG} and a new word</p>"})
    assert found.shingles
    assert found.shingles.anchor == [TextRun(shared=True, text=found.shingles.anchor[0].text, units=100)]
    assert found.shingles.page[1:] == [TextRun(shared=False, text="and a new word", units=4)]
    shared, of_anchor, of_page = found.shingles.counts
    assert (of_anchor, of_page) == (0, 4)
    assert found.exact_similarity == round(shared / (shared + 4), 4)
    assert found.distance is not None
    assert found.why.startswith("counted similarity ")
    assert found.alike
    same = await comparison(pool, {"text": LONG}, {"text": LONG})
    assert (same.alike, same.distance, same.similarity, same.exact_similarity) == (True, 0, 1.0, 1.0)
    longer = " ".join(f"pier {n}" for n in range(100))
    estimated = await comparison(pool, {"text": longer}, {"text": f"{longer} and a new word"})
    assert estimated.why.startswith("estimated similarity ")
    assert estimated.why.endswith(" is at least 0.8"), "by lists, which are too long to be counted"
    other = await comparison(pool, {"text": LONG}, {"text": "quite another page about ships " * 20})
    assert (other.alike, other.exact_similarity) == (False, 0.0)


async def test_a_page_without_a_fingerprint_still_has_its_shingles_shown(pool: ChildPool) -> None:
    found = await comparison(pool, {"text": "a few words"}, {"text": LONG})
    assert found.why == "the page to compare with has too little text for a fingerprint"
    assert (found.alike, found.distance, found.similarity) == (None, None, None)
    assert found.shingles
    assert found.shingles.anchor == [TextRun(shared=False, text="a few words", units=3)]
    empty = await comparison(pool, {"text": LONG}, {"text": ""})
    assert empty.why == "the page has too little text for a fingerprint"
    assert empty.shingles
    assert empty.shingles.page == []


@pytest.mark.parametrize(
    "unit", cases(["a ", "灯塔修复", "\u202e\u0301", "<p>", "&lt;", "x"], by_day=["a ", "灯塔修复"])
)
async def test_the_largest_texts_have_a_bounded_answer(pool: ChildPool, unit: str) -> None:
    most = LOOKUP_BYTES // 2
    text = (unit * most)[: most // len(unit.encode()) * len(unit)]
    for kind in ("text", "html"):
        found = await comparison(pool, {kind: text}, {kind: f"b c d {text}"})
        assert pool.crashes == 0, found
        assert found.shingles or "rejected" in found.why
        assert len(msgspec.json.encode(found)) < 2 * MOST_RUNS * 6 * LONGEST_OWN


async def test_a_rejected_page_is_not_compared(pool: ChildPool) -> None:
    found = await comparison(pool, {"text": "x" * (17 << 20)}, {"text": LONG})
    assert found.why.startswith("the page to compare with is rejected: too_large (")
    assert found.shingles is None
    found = await comparison(pool, {"text": LONG}, {"url": "no url", "text": LONG})
    assert found.why.startswith("the page is rejected: bad_url (")


@pytest.mark.parametrize(
    ("order", "why", "crashes"),
    [
        ("memory", "crash (needed more memory than child_memory", 1),
        ("fail", "failed (ValueError: on purpose", 0),
    ],
)
async def test_a_comparison_that_kills_its_process_takes_no_other_with_it(
    order: str, why: str, crashes: int, children_find_the_tests: None
) -> None:
    hostile = configuration("tests.kafka.fingerprinters.HostileComparer")
    async with asyncio.timeout(HANG_SECONDS), ChildPool(1, hostile) as pool:
        found = await comparison(pool, {"text": f"{LONG} {order}"}, {"text": LONG})
        assert found.why.startswith(f"the pages could not be compared: {why}")
        assert pool.crashes == crashes
        assert (await comparison(pool, {"text": LONG}, {"text": LONG})).alike

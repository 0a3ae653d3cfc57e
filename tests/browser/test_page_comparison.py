"""A look-up compares two pasted pages and shows both as text, with what they do not share in marks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import expect

from stream.dashboard.answers import Comparison, Lookup
from tests.browser.canned import PLAIN, canned, comparison, served
from tests.browser.test_hostile_content import HOSTILE, MEASURE, SCRIPT, lookups
from tests.browser.test_layout import unfold, violations

LINES = "(all) => all.map((e) => [e.localName, getComputedStyle(e).textDecorationStyle])"


async def test_two_pages_are_compared_in_marks(opened: Callable[..., Any], shot: Callable[..., Any]) -> None:
    api = canned(PLAIN)
    answer = api.answers["lookup"]
    assert isinstance(answer, Lookup)
    # As long as they come: whole words, and Chinese.
    answer.comparison = comparison("the old north pier " * 20, "旧灯塔在冬天之前修复。" * 20, "new words")
    async with served(api) as url:
        page = await opened(url, viewport={"width": 1400, "height": 900}, color_scheme="light")
        await page.fill("#lookup-content", "this page")
        await page.fill("#compare-content", "<p>the earlier page")
        await page.check("[name=compare-as][value=html]")
        await page.click("#lookup button[type=submit]")
        runs = page.locator("#comparison .runs")
        await expect(runs).to_have_count(2)
        assert json.loads(lookups(api)[-1]) == {
            "text": "this page",
            "compare": {"html": "<p>the earlier page"},
        }
        await expect(page.locator("#comparison")).to_contain_text("near-duplicates: estimated similarity")
        await expect(page.locator("#comparison")).to_contain_text("Exact similarity: 0.987.")
        await expect(page.locator("#comparison")).to_contain_text(
            "7 shared, 7 only in the compared page, 14 only"
        )
        # By sign and by line, not by colour alone.
        first, second = await runs.all()
        await expect(first.locator("del")).to_contain_text("− the old north pier")
        await expect(second.locator("ins").last).to_have_text("+ new words")
        await expect(second).to_contain_text("and 1234 more runs")
        assert await first.locator("ins").count() == await second.locator("del").count() == 0
        marks = await page.locator("#comparison .runs :is(ins, del)").evaluate_all(LINES)
        assert marks == [["del", "dashed"], ["ins", "solid"], ["ins", "solid"]]
        assert await violations(page) == []
        for theme in ("light", "dark"):
            await page.emulate_media(color_scheme=theme)
            assert await page.evaluate(MEASURE) == []
            await shot(page, f"comparison-{theme}")

        # A look-up without a second page, as by a link, shows no old comparison.
        answer.comparison = None
        await page.fill("#compare-content", "")
        await page.click("#lookup button[type=submit]")
        await expect(runs).to_have_count(0)
        assert "compare" not in json.loads(lookups(api)[-1])


@pytest.mark.night
async def test_hostile_texts_are_compared_as_text(opened: Callable[..., Any]) -> None:
    api = canned(HOSTILE)
    answer = api.answers["lookup"]
    assert isinstance(answer, Lookup)
    answer.comparison = comparison(
        SCRIPT, "\u202egnp.exe\u2066\u200b\x1b[31m", "</ins></div>שלום" + "x" * 480
    )
    async with served(api) as url:
        page = await opened(url, viewport={"width": 390, "height": 900})
        await unfold(page)
        await page.fill("#lookup-content", SCRIPT)
        await page.fill("#compare-content", SCRIPT)
        await page.click("#lookup button[type=submit]")
        runs = page.locator("#comparison .runs")
        await expect(runs).to_have_count(2)
        await expect(runs.first).to_contain_text(f"− {SCRIPT}")
        await expect(runs.last).to_contain_text("+ \\u{202e}gnp.exe\\u{2066}\\u{200b}\\u{1b}[31m")
        await expect(runs.last).to_contain_text("</ins></div>")
        assert await page.evaluate("window.hacked") is None
        assert await page.locator("#comparison :is(script, img)").count() == 0
        assert await page.evaluate(MEASURE) == []
        assert await violations(page) == []

        why = f"the page to compare with is rejected: failed ({SCRIPT})"
        answer.comparison = Comparison(why)
        await page.click("#lookup button[type=submit]")
        await expect(page.locator("#comparison")).to_contain_text(why)
        await expect(runs).to_have_count(0)
        assert await page.evaluate("window.hacked") is None

"""Texts of the page: times, the rule, and explanations of empty panels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from playwright.async_api import expect

from stream.dashboard.answers import Figures, Lookup
from tests.browser.canned import NOON, PLAIN, canned, served
from tests.browser.test_layout import filled
from tests.waiting import until

IDLE = 1_767_358_800.0
"""2026-01-02T13:00:00Z."""


async def test_times_are_utc_and_say_so_wherever_one_looks_from(opened: Callable[..., Any]) -> None:
    seen = []
    for zone in ("UTC", "Asia/Tokyo", "America/St_Johns"):
        api = canned(PLAIN)
        async with served(api) as url:
            page = await opened(url, timezone_id=zone, locale="de-DE", reduced_motion="reduce")
            await filled(page, api)
            text = await page.inner_text("main")
            assert "2026-01-02, 12:00:00 to 12:05:00 UTC" in text
            assert "time (UTC)" in text
            assert "2026-01-02 12:00:01" in text
            await page.select_option("#range", "custom")
            assert "From (UTC)" in await page.inner_text("header")
            await page.fill("#from", "2026-01-02T12:00")
            await page.locator("#from").press("Tab")
            await expect(page.locator("#series .uplot")).to_be_visible()
            await until(lambda api=api: any("from=1767355200" in each for each in api.asked))
            seen.append((text, await page.locator("#series").screenshot()))
    assert seen[0] == seen[1] == seen[2]


@pytest.mark.parametrize(
    ("since", "said"), [(60, "Verdicts before 2026-01-02 12:01:00 UTC may be missing"), (0, "")]
)
async def test_figures_say_since_when_they_are_complete(
    opened: Callable[..., Any], since: int, said: str
) -> None:
    """If that is within what is shown."""
    api = canned(PLAIN)
    api.answers["figures"].since = NOON + since  # type: ignore[attr-defined]
    async with served(api) as url:
        page = await opened(url)
        await filled(page, api)
        hint = await page.inner_text("#series-hint")
        assert said in hint
        assert ("may be missing" in hint) == bool(said)


@pytest.mark.night
async def test_an_idle_deployment_shows_all_rather_than_nothing(opened: Callable[..., Any]) -> None:
    api = canned(PLAIN)
    full, nothing = api.answers["figures"], canned(None).answers["figures"]
    assert isinstance(nothing, Figures)
    nothing.last = IDLE
    api.answers["figures"] = lambda query: full if "range=all" in query else nothing  # type: ignore[assignment, return-value]
    async with served(api) as url:
        page = await opened(url)
        await expect(page.locator("#range")).to_have_value("all")
        await expect(page.locator("#series .uplot")).to_be_visible()
        await expect(page.locator("#series-hint")).to_contain_text("The last 15 minutes have none")

        # What somebody chose stays, and says when there was something.
        page = await opened(f"{url}#range=1h")
        await expect(page.locator("#series")).to_contain_text(
            "The last one was decided by 2026-01-02 13:00:00 UTC"
        )
        await expect(page.locator("#range")).to_have_value("1h")
        await page.click("#series button")
        await expect(page.locator("#series .uplot")).to_be_visible()
        await expect(page.locator("#range")).to_have_value("all")
    async with served(canned(None)) as url:
        page = await opened(url)
        await expect(page.locator("#series")).to_contain_text("No verdict yet")
        await expect(page.locator("#range")).to_have_value("15m")


@pytest.mark.night
async def test_a_young_deployment_fills_its_chart(opened: Callable[..., Any]) -> None:
    """A crawl of some seconds was one bar in an empty quarter of an hour."""
    api = canned(PLAIN)
    figures = api.answers["figures"]
    assert isinstance(figures, Figures)
    young = msgspec.structs.replace(figures, first=figures.range.start + 600)
    api.answers["figures"] = lambda query: figures if "range=all" in query else young  # type: ignore[assignment, return-value]
    async with served(api) as url:
        page = await opened(url)
        await expect(page.locator("#range")).to_have_value("all")
        await expect(page.locator("#series .uplot")).to_be_visible()
        await expect(page.locator("#series-hint")).not_to_contain_text("The last 15 minutes have none")
        page = await opened(f"{url}#range=15m")
        await expect(page.locator("#series .uplot")).to_be_visible()
        await expect(page.locator("#range")).to_have_value("15m")


async def test_panels_have_room_and_a_mark_while_they_load(opened: Callable[..., Any]) -> None:
    async with served(canned(PLAIN)) as url:
        page = await opened("about:blank", viewport={"width": 1400, "height": 900})
        await page.route("**/api/v1/**", lambda _: None)  # never answered
        await page.goto(url)
        loading = page.locator(".loads:empty")
        assert await loading.count() == 11
        for box in [await each.bounding_box() for each in await loading.all()]:
            assert box is not None
            assert box["height"] >= 120
        assert await loading.first.evaluate("(each) => getComputedStyle(each).animationName") == "loads"
        await page.unroute_all(behavior="ignoreErrors")


@pytest.mark.night
async def test_texts_say_what_the_rule_is_and_what_was_searched(opened: Callable[..., Any]) -> None:
    """A host without duplicates has no bar."""
    api = canned(PLAIN)
    result = api.answers["lookup"]
    assert isinstance(result, Lookup)
    async with served(api) as url:
        page = await opened(url)
        for said in ("neardup 0.", "fd83eb603f825be2", "verified", "not considered", "at least 0.8"):
            await expect(page.locator("#rule")).to_contain_text(said)
        await expect(page.locator("#distances-rule")).to_be_empty()  # distance is not considered
        await expect(page.locator("#similarities-rule")).to_contain_text("at least 0.8")
        await expect(page.locator("#hosts tbody tr")).to_have_count(len(PLAIN.hosts))
        bars = [await row.locator(".bar").count() for row in await page.locator("#hosts tbody tr").all()]
        assert bars == [1, 1, 1, 0]
        await page.fill("#lookup-content", "The harbour authority will repair the old lighthouse.")
        await page.click("#lookup button[type=submit]")
        await expect(page.locator("#found")).to_contain_text("Nearest anchors")
        result.near.clear()
        await page.click("#lookup button[type=submit]")
        await expect(page.locator("#found")).to_contain_text("No anchor has a similarity of 0.5")
        await expect(page.locator("#found")).not_to_contain_text("Nearest anchors")

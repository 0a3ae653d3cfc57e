"""The layout with all kinds of content at all widths, light and dark, by measurement instead of reference
images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.canned import CONTENTS, LONG, Canned, PageContent, canned, served

MEASURE = Path(__file__).with_name("measure.js").read_text()
WIDTHS = (360, 768, 1400)
"""A small phone, a tablet or half a screen, a laptop."""
KINDS: dict[str, PageContent | None] = {**CONTENTS, "empty": None}


async def filled(page: Page, api: Canned) -> None:
    """Wait until every panel shows its answer; open a cluster and a look-up."""
    for panel in ("#roles", "#reasons", "#hosts", "#clusters", "#latest"):
        await expect(page.locator(panel).locator(":scope > :is(table, .empty)").first).to_be_visible()
    for chart in ("#series", "#lag"):
        await expect(page.locator(chart).locator(":scope > :is(.uplot, .empty)")).to_be_visible()
    if cluster := await page.locator("#clusters button").all():
        await cluster[0].click()
        await expect(page.locator("#clusters ol li").first).to_be_visible()
    await page.fill("#lookup-url", "https://example.org/")
    await page.fill("#lookup-content", "The harbour authority will repair the old lighthouse.")
    await page.fill("#compare-content", "The harbour authority repairs the lighthouse.")
    await page.click("#lookup button[type=submit]")
    await expect(page.locator("#found .judgement")).to_be_visible()
    asked = {each.partition("?")[0].removeprefix("/api/v1/") for each in api.asked}
    assert asked >= api.answers.keys() - {"lookup", "neighbours"}  # a body, and what the page of a host asks


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("content", KINDS)
async def test_everything_has_room_and_can_be_read(
    content: str, width: int, opened: Callable[..., Any], shot: Callable[..., Any]
) -> None:
    api = canned(KINDS[content])
    async with served(api) as url:
        page = await opened(url, viewport={"width": width, "height": 900}, color_scheme="light")
        await filled(page, api)
        for theme in ("light", "dark"):
            await page.emulate_media(color_scheme=theme)
            await shot(page, f"{content}-{width}-{theme}")
            assert await page.evaluate(MEASURE) == []


async def test_the_header_stands_on_one_line_of_a_laptop(opened: Callable[..., Any]) -> None:
    api = canned(LONG)
    async with served(api) as url:
        page = await opened(url, viewport={"width": 1400, "height": 900})
        await filled(page, api)
        # All that may be there at once: who came by a token can log out, and a connection can be lost.
        await page.evaluate("document.getElementById('log-out').hidden = false")
        await page.evaluate("document.getElementById('connection').textContent = 'connection lost'")
        header = "header :is(h1, p, select, input, button):not(#custom *)"
        boxes = [await each.bounding_box() for each in await page.locator(header).all()]
        middles = [round(box["y"] + box["height"] / 2) for box in boxes if box]
        assert len(middles) == 11
        assert max(middles) - min(middles) <= 2
        assert await page.evaluate(MEASURE) == []

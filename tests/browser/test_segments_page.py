"""The page of segments and of who holds them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import pytest
from playwright.async_api import Page, expect

from stream.dashboard.answers import Segments
from tests.browser.canned import LONG, PLAIN, Canned, PageContent, canned, segments, served
from tests.browser.test_accessibility import violations
from tests.browser.test_layout import MEASURE

KINDS: dict[str, PageContent | None] = {"plain": PLAIN, "long": LONG, "empty": None}
NARROW, WIDE = 360, 1400


def answered(answer: Segments) -> Canned:
    """A dashboard with this answer."""
    api = canned(PLAIN)
    api.answers["segments"] = answer
    return api


async def rows(page: Page) -> list[str]:
    await expect(page.locator("#segments tbody tr").first).to_be_visible()
    return await page.locator("#segments tbody tr").all_inner_texts()


@pytest.mark.parametrize(("content", "width"), [*((each, NARROW) for each in KINDS), ("plain", WIDE)])
async def test_the_page_has_room_and_can_be_read(
    content: str, width: int, opened: Callable[..., Any], shot: Callable[..., Any]
) -> None:
    async with served(canned(KINDS[content])) as url:
        page = await opened(f"{url}segments", viewport={"width": width, "height": 900}, color_scheme="light")
        await expect(page.locator("#segments").locator(":scope > :is(table, .empty)")).to_be_visible()
        await shot(page, f"segments-{content}-{width}-light")
        assert await page.evaluate(MEASURE) == []
        assert await violations(page) == []  # which ends in the dark
        await shot(page, f"segments-{content}-{width}-dark")
        assert await page.evaluate(MEASURE) == []


async def test_each_segment_names_its_holders_and_what_they_answered(opened: Callable[..., Any]) -> None:
    async with served(canned(PLAIN)) as url:
        page = await opened(url)
        await page.locator("#t-roles ~ .hint a").click()
        first, second, third, fourth = (await rows(page))[:4]
        summary = page.locator("#summary")
        await expect(summary).to_contain_text("1,234 segments with 20,703,084,544 anchors")
        await expect(summary).to_contain_text("dropped its tables of the first 3")
        assert "0 to 16,777,216" in first
        assert "dropped" in first
        assert re.search(
            r"answers host-of-mirror.*\n.*probers: up to record 987,654,309, 12 records beh", first
        )
        assert re.search(r"uncovered\n.*probers-b: no answer seen", first)
        assert "answered by another-1234abcd, up to record" in second
        assert "rebalancing" in third
        assert "held" in fourth
        assert "unknown" in fourth
        groups = await page.locator("#groups tbody tr").all_inner_texts()
        assert re.search(r"^probers\s+Stable\s+0\s+12 records\s+host-of-mirror", groups[0])
        assert re.search(r"^probers-b\s+Empty\s+1,234\s+–\s+nobody", groups[1])


async def test_thousands_of_segments_are_shown_a_part_at_a_time(opened: Callable[..., Any]) -> None:
    api = canned(PLAIN)
    api.answers["segments"] = lambda query: segments(
        "neardup", "host-1", 60, int(parse_qs(query).get("offset", ["0"])[0])
    )
    async with served(api) as url:
        page = await opened(f"{url}segments")
        assert len(await rows(page)) == 25
        await expect(page.locator("#earlier")).to_be_disabled()
        for shown in ("26 to 50 of 60", "51 to 60 of 60"):
            await page.locator("#later").press("Enter")
            await expect(page.locator("#shown")).to_have_text(shown)
        await expect(page.locator("#later")).to_be_disabled()
        assert len(await rows(page)) == 10
        export = page.locator("#export-segments a").first
        await expect(export).to_have_attribute("href", "/api/v1/segments?offset=50&limit=200&format=csv")
        other = await opened(page.url)  # the address names the place
        await expect(other.locator("#shown")).to_have_text("51 to 60 of 60")
        await page.locator("#earlier").press("Enter")
        await expect(page.locator("#shown")).to_have_text("26 to 50 of 60")


def nothing(state: str, total: int = 0, dropped: int | None = 0) -> Segments:
    return Segments(state, None, [], [], total, 0, 0, dropped, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (nothing("none"), "tables of all anchors. The setting segment_anchors is 0"),
        (nothing("reading"), "is being read"),
        (nothing("following"), "No segments are announced yet"),
        (nothing("following", 1, None), "no leading judge is in dashboard_roles"),
        (nothing("following", 1), "The judge holds the tables of all of them"),
    ],
)
async def test_where_there_is_nothing_it_says_why(
    answer: Segments, said: str, opened: Callable[..., Any]
) -> None:
    async with served(answered(answer)) as url:
        page = await opened(f"{url}segments")
        await expect(page.locator("#summary")).to_contain_text(said)
        await expect(page.locator("#groups .empty")).to_be_visible()
        await expect(page.locator("#turn")).to_be_hidden()


async def test_an_old_answer_is_shown_as_such(opened: Callable[..., Any]) -> None:
    answer = segments("neardup", "host-1", 1)
    answer.error = "topic neardup.segments: its brokers do not answer"
    async with served(answered(answer)) as url:
        page = await opened(f"{url}segments")
        await expect(page.locator("#notice")).to_contain_text("may be old: topic neardup.segments: its bro")
        assert len(await rows(page)) == 1


async def test_names_of_holders_are_text_and_a_login_returns_here(opened: Callable[..., Any]) -> None:
    hostile = "<img src=x onerror=window.hacked=1>"
    token = "correct horse battery"  # noqa: S105
    async with served(answered(segments("neardup", hostile, 2)), dashboard_token=token) as url:
        page = await opened(f"{url}segments")
        assert "/login?to=segments" in page.url
        assert (await page.request.get(f"{url}api/v1/segments")).status == 401
        await page.fill("#token", token)
        await page.keyboard.press("Enter")
        assert hostile in (await rows(page))[0].replace("\n", "")
        assert await page.evaluate("window.hacked") is None
        assert await page.locator("main img").count() == 0

"""The page as people use it, in a real Chromium; pictures go to build/screenshots or NEARDUP_SCREENSHOTS."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import Page, expect

from stream.settings import Settings
from tests.kafka.dashboard_helpers import VerdictMaker, by_kind, dashboard, decide

pytestmark = pytest.mark.broker

PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "has_touch": True}
WALL = {"viewport": {"width": 2560, "height": 1440}}
CONTRAST = """
() => {
  const ink = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (at) => {
    for (; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (colour.startsWith("rgb(")) return colour;
    }
    return "rgb(255,255,255)";
  };
  return [...document.querySelectorAll("h1,h2,p,th,td,label,legend,.value,.name,.state,button,a,li")]
    .filter((each) => each.offsetParent && each.textContent.trim())
    .map((each) => {
      const [a, b] = [light(ink(getComputedStyle(each).color)), light(ink(ground(each)))];
      return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), each.textContent.trim().slice(0, 40)];
    }).filter(([ratio]) => ratio < 4.5);
}
"""


async def shows(page: Page, pages: int) -> None:
    """Wait until the tile counts so many pages."""
    tile = page.locator(".tile", has_text=re.compile("^Pages")).locator(".value")
    await expect(tile).to_have_text(re.compile(rf"^{pages:,} ?pages$"))


async def legend(page: Page) -> dict[str, int]:
    found = [text.split(": ") for text in await page.locator("#series-legend li").all_inner_texts()]
    return {kind: int(pages.replace(",", "")) for kind, pages in found}


async def test_figures_on_the_page_are_a_recount_live_and_after_a_restart(
    settings: Settings, opened: Callable[..., Any]
) -> None:
    made = VerdictMaker()
    kept = made.some(250)
    await decide(settings, kept)
    await decide(settings, made.some(70), commit=False)
    async with dashboard(settings) as client:
        page = await opened(client.url)
        await shows(page, 250)
        assert await legend(page) == by_kind(kept)

        # A live update: no reload, and no aborted verdict.
        late = "http://late.example/"
        kept.append(made.one("duplicate", url=late))
        await decide(settings, made.some(30), commit=False)
        await decide(settings, kept[-1:])
        await expect(page.locator("#latest tbody tr").first).to_contain_text(late)
        await shows(page, 251)
        assert await legend(page) == by_kind(kept)

        # A URL is looked up: its verdict and its cluster.
        await page.fill("#lookup-url", late)
        await page.click("#lookup button")
        await expect(page.locator("#found")).to_contain_text("the only stored verdict is duplicate")
        await expect(page.locator("#found ol li").first).to_be_visible()
        assert "[object" not in await page.inner_text("body")
    async with dashboard(settings) as client:
        page = await opened(client.url)
        await shows(page, 251)
        assert await legend(page) == by_kind(kept)


@pytest.mark.night
async def test_the_page_is_fit_for_use(
    settings: Settings, opened: Callable[..., Any], shot: Callable[..., Any]
) -> None:
    made = VerdictMaker(at=time.time() - 500)
    kept = []
    for _ in range(10):
        news = made.some(120)
        made.at += 40
        await decide(settings, news)
        kept += news
    async with dashboard(settings) as client:
        page = await opened(client.url, viewport={"width": 1440, "height": 900}, color_scheme="light")
        await shows(page, 1200)
        await expect(page.locator("#roles")).to_contain_text("no process in its group")
        await page.locator("#clusters button").first.click()
        await expect(page.locator("#clusters ol li").first).to_be_visible()
        await shot(page, "light")
        assert "[object" not in await page.inner_text("body")
        assert await page.evaluate(CONTRAST) == []

        await page.emulate_media(color_scheme="dark")
        assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 21, 27)"
        assert await page.evaluate(CONTRAST) == []
        await shot(page, "dark")
        await page.click("#theme")
        assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(244, 245, 247)"

        # Filters: a host by a click, a verdict by the keyboard, and both in the address.
        top = page.locator("#hosts button").first
        host = await top.inner_text()
        await top.click()
        its = [each for each in kept if f"//{host}/" in (each.url or "")]
        await shows(page, len(its))
        await expect(page.locator("#latest tbody tr").first).to_contain_text(host)
        await page.locator(".kind", has_text="unique").focus()
        await page.keyboard.press("Space")
        await expect(page.locator(".kind", has_text="unique")).to_have_attribute("aria-pressed", "false")
        await expect(page.locator("#latest .badge", has_text="unique")).to_have_count(0)
        assert "unique" not in await legend(page)
        await page.reload()
        await shows(page, len(its))
        assert "unique" not in await legend(page)
        await page.fill("#host", "nobody.example")
        await page.keyboard.press("Enter")
        await expect(page.locator("#series")).to_have_text("No verdict for this host.")
        await page.fill("#host", "")
        await page.select_option("#range", "all")
        await shows(page, 1200)

        await page.reload()
        await shows(page, 1200)
        await _by_keyboard(page)
        for name, context in (("phone", PHONE), ("wall", WALL)):
            other = await opened(client.url, **context)
            await shows(other, 1200)
            await expect(other.locator("#latest tbody tr").first).to_be_visible()
            wide = await other.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert wide[0] <= wide[1], f"{name}: the page is wider than the screen"
            await shot(other, name)


async def _by_keyboard(page: Page) -> None:
    """Everything that can be clicked can be reached by Tab, has a name, and shows where one is."""
    nameless = await page.evaluate(
        "[...document.querySelectorAll('button,input,select,textarea,a')].filter((each) => each.offsetParent"
        " && !(each.innerText || each.ariaLabel || each.labels?.length)).map((each) => each.outerHTML)"
    )
    assert nameless == []
    reached = set()
    for _ in range(14):
        await page.keyboard.press("Tab")
        reached.add(await page.evaluate("document.activeElement.id || document.activeElement.className"))
        assert await page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    assert {"skip", "range", "host", "kind", "theme"} <= reached

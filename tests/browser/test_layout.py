"""The layout with all kinds of content at all widths, light and dark, by measurement instead of reference
images."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import cycle, product
from pathlib import Path
from typing import Any

import axe_playwright_python  # type: ignore[import-untyped]
import pytest
from playwright.async_api import Page, expect

from stream.dashboard.answers import Figures, System
from tests.browser.canned import CONTENTS, LONG, PLAIN, Canned, PageContent, canned, served
from tests.night import cases
from tests.waiting import until

MEASURE = Path(__file__).with_name("measure.js").read_text()
WIDTHS = (360, 768, 1400)
"""A small phone, a tablet or half a screen, a laptop."""
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text("utf-8")
"""axe-core, as it comes with the package; its own runner would load it anew for each question."""
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
VIOLATIONS = """
async (rules) => (await axe.run(document, { runOnly: rules, resultTypes: ["violations"] }))
  .violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html.slice(0, 200))])
"""
KINDS: dict[str, PageContent | None] = {**CONTENTS, "empty": None}


async def violations(page: Page) -> Any:
    await page.evaluate(AXE)
    found = []
    for theme in ("light", "dark"):
        await page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        found += await page.evaluate(VIOLATIONS, RULES)
    return found


async def unfold(page: Page) -> None:
    """Open the panels that are folded on a narrow screen."""
    await page.wait_for_load_state()
    await page.evaluate(
        "document.querySelectorAll('h2 button[aria-expanded=false]').forEach((e) => e.click())"
    )


async def filled(page: Page, api: Canned) -> None:
    """Wait until every panel shows its answer; open a cluster and a look-up."""
    await unfold(page)
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


@pytest.mark.parametrize(
    ("content", "width"), cases(product(KINDS, WIDTHS), by_day=[*zip(KINDS, cycle(WIDTHS), strict=False)])
)
async def test_everything_has_room_can_be_read_and_is_accessible(
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
        if content != "empty":
            await page.locator("#latest summary").first.click()
        await page.select_option("#range", "custom")
        await page.evaluate("document.getElementById('notice').hidden = false")
        await page.evaluate("document.getElementById('notice').textContent = 'The brokers do not answer.'")
        assert await violations(page) == []


PHONE = {"viewport": {"width": 360, "height": 900}, "color_scheme": "light"}
RECORD_TEXTS = """
(() => {
  window.painted = [];
  const paint = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    window.painted.push([this.canvas.closest(".chart")?.id, text]);
    return paint.call(this, text, ...rest);
  };
})()
"""
"""Notes what is written on canvases, and in which chart."""


async def painted(page: Page, chart: str) -> list[str]:
    """The texts that a chart has, each once, as it was drawn last or before."""
    texts = [text for where, text in await page.evaluate("window.painted") if where == chart]
    return list(dict.fromkeys(texts))


@pytest.mark.night
async def test_a_phone_shows_figures_and_verdicts_first_and_folds_the_rest(
    opened: Callable[..., Any], shot: Callable[..., Any]
) -> None:
    api = canned(PLAIN)
    async with served(api) as url:
        page = await opened("about:blank", **PHONE)
        await page.add_init_script(RECORD_TEXTS)
        await page.goto(url)
        await expect(page.locator("#latest tbody tr").first).to_be_visible()
        await expect(page.locator("#roles table")).to_be_visible()
        await shot(page, "folded")
        assert await page.evaluate("document.documentElement.scrollHeight / innerHeight") < 3
        assert await page.evaluate(MEASURE) == []
        clocks = [text for text in await painted(page, "series") if re.fullmatch(r"\d\d:\d\d", text)]
        assert len(clocks) >= 3
        latest, roles = [await page.locator(each).bounding_box() for each in ("#latest", "#roles")]
        assert latest["y"] < roles["y"]

        await expect(page.locator("#hosts")).to_be_hidden()
        await page.locator("#t-hosts button").press("Enter")
        await expect(page.locator("#hosts")).to_be_visible()
        await page.locator("#t-distances button").press("Enter")
        chart = await page.locator("#distances canvas").bounding_box()
        assert chart["x"] > 0
        assert chart["x"] + chart["width"] < 360

        # A link to a look-up opens its panel.
        await expect(page.locator("#lookup")).to_be_hidden()
        await page.locator("#latest tbody a").first.click()
        await expect(page.locator("#found .judgement")).to_be_visible()

        # Turned to the side, nothing is folded.
        await page.set_viewport_size({"width": 900, "height": 360})
        await expect(page.locator("#clusters")).to_be_visible()
        await expect(page.locator("h2 button")).to_have_count(0)


CUT = """
(list, edge) => [...list.rows].map((row) => row.getBoundingClientRect())
  .filter(({ top, bottom }) => top < edge - 1 && bottom > edge + 1).length
"""
"""How many rows of a list are on both sides of an edge."""


@pytest.mark.night
@pytest.mark.parametrize("width", WIDTHS)
async def test_the_list_of_verdicts_ends_with_a_whole_row(width: int, opened: Callable[..., Any]) -> None:
    api = canned(PLAIN)
    async with served(api) as url:
        page = await opened(url, viewport={"width": width, "height": 900})
        await expect(page.locator("#latest tbody tr").first).to_be_visible()

        async def whole() -> bool:
            box = await page.locator("#latest").bounding_box()
            rows = await page.locator("#latest table").evaluate(CUT, box["y"] + box["height"])
            return bool(rows == 0)

        await until(whole)
        older = await page.evaluate("document.getElementById('older').offsetTop")
        await page.locator("#latest summary").first.click()
        await until(whole)
        assert await page.evaluate("document.getElementById('older').offsetTop") == older, (
            "what is below moves"
        )


@pytest.mark.night
async def test_exact_copies_leave_other_bars_readable(opened: Callable[..., Any]) -> None:
    api = canned(PLAIN)
    figures = api.answers["figures"]
    assert isinstance(figures, Figures)
    figures.distances = {"duplicate": [9000, 3, 0, 12, *[0] * 60], "recrawl": [1000, *[0] * 63]}
    figures.similarities = {"duplicate": [*[0] * 80, *[5] * 20, 9000], "recrawl": [0] * 101}
    async with served(api) as url:
        page = await opened("about:blank", viewport={"width": 1400, "height": 900}, color_scheme="light")
        await page.add_init_script(RECORD_TEXTS)
        await page.goto(url)
        await expect(page.locator("#distances-cut")).to_have_text(
            "The bar of distance 0 bits is cut: it stands for 10,000 of 10,015 pages."
        )
        await expect(page.locator("#similarities-cut")).to_contain_text("similarity 1.00")
        assert "10.0 k ↑" in await painted(page, "distances")
        assert {"5", "10", "15"} <= set(await painted(page, "distances"))
        await page.locator("#scale").press("Enter")
        await expect(page.locator("#distances-cut")).to_be_empty()


@pytest.mark.night
async def test_tiles_do_not_repeat_each_other_and_say_what_waits(opened: Callable[..., Any]) -> None:
    """One is singular."""
    api = canned(PLAIN)
    figures, system = api.answers["figures"], api.answers["system"]
    assert isinstance(figures, Figures)
    assert isinstance(system, System)
    async with served(api) as url:
        tiles = (await opened(url)).locator(".tile")
        await expect(tiles).to_have_count(6)
        await expect(tiles.nth(4)).to_contain_text("7,000 pages and 7,000 journal records waiting")
        names = await tiles.locator(".name").all_inner_texts()
        assert names == ["Speed", "Pages", "Duplicates", "Unique", "Delay", "Stored"]
        await expect(tiles.nth(5)).to_contain_text("7,000 anchors to compare with")
        figures.verdicts["duplicate"] = system.anchors = 1
        for group in system.groups:
            group.lag_records = 1
        tiles = (await opened(url)).locator(".tile")
        await expect(tiles.nth(4)).to_contain_text(re.compile(r"1 page and 1 journal record waiting"))
        await expect(tiles.nth(5)).to_contain_text(re.compile(r"1 anchor to compare with"))
        await expect(tiles.nth(2)).to_contain_text(re.compile(r"1 page$"))


@pytest.mark.night
async def test_a_new_verdict_is_marked_as_a_whole(opened: Callable[..., Any]) -> None:
    """On a phone the cells of a row stand apart."""
    api = canned(PLAIN)
    async with served(api) as url:
        page = await opened(url, viewport={"width": 360, "height": 900}, reduced_motion="no-preference")
        await expect(page.locator("#latest tr").nth(1)).to_be_visible()
        style = """(name) => { const row = document.querySelector("#latest tbody tr");
            row.classList.add("fresh"); const seen = row.querySelector(name) ?? row;
            return getComputedStyle(seen).animationName; }"""
        assert await page.evaluate(style, "tr") == "fresh"
        assert await page.evaluate(style, "td") == "none"


@pytest.mark.night
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

"""What somebody on call looks at: who is behind, since when, and what happened then."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import expect

from stream.dashboard.answers import Changes, Figures, Forgetting, Lag, System, Window
from tests.browser.canned import NOON, PLAIN, canned, served
from tests.waiting import until

PIXELS = """
() => {
  const canvas = document.querySelector("#series canvas");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let found = 0;
  for (let i = 0; i < data.length; i += 4) {
    const [red, green, blue, alpha] = data.slice(i, i + 4);
    found += alpha > 200 && (%s);
  }
  return found;
}
"""
MARKS = PIXELS % "red < 40 && green < 50"
"""How many pixels of the chart have the colour of text, which only marks have."""
RED = PIXELS % "red > 170 && green < 80 && blue < 90"
"""How many have that of rejected pages."""


async def test_lag_says_who_is_behind_and_since_when(opened: Callable[..., Any]) -> None:
    api = canned(PLAIN)
    async with served(api) as url:
        page = await opened(url, color_scheme="light")
        await expect(page.locator("#lag .uplot")).to_be_visible()
        # The legend says in words what the lines show.
        legend = page.locator("#lag-legend li")
        await expect(legend).to_have_text(
            ["worker: at most 83 s", "judge: at most 400 ms", "dashboard: at most –"]
        )
        await expect(page.locator("#lag-since")).to_contain_text("when this dashboard started")
        behind = page.locator("#behind tbody tr")
        await expect(behind).to_have_count(2)
        await expect(behind.first).to_contain_text("nobody")
        await expect(behind.last).to_contain_text("10.0.0.7")

        await page.locator("#lag-of").focus()
        await page.select_option("#lag-of", "worker")
        await expect(legend.first).to_have_text("partition 0: at most 83 s")
        await expect(legend.last).to_have_text("and at most 10 more partitions at once")
        assert f"/api/v1/lag?from={NOON}&to={NOON + 300}&role=worker" in api.asked

        # Hovering says the figures of a step, and what happened in it.
        await page.locator("#lag .u-over").hover(position={"x": 5, "y": 20})
        await expect(page.locator("#lag .tip")).to_contain_text("partition 0: 0 s, 0 records")

        lag, system = api.answers["lag"], api.answers["system"]
        assert isinstance(lag, Lag)
        assert isinstance(system, System)
        lag.partitions, system.groups[0].behind, system.groups[0].partitions_behind = [], [], 0
        await expect(page.locator("#behind")).to_have_text("Every partition is read to its end.")
        await page.select_option("#lag-of", "dashboard")
        await expect(page.locator("#lag")).to_contain_text("No partition was behind in this range")


@pytest.mark.night
async def test_the_window_and_requests_are_shown_where_there_are_any(opened: Callable[..., Any]) -> None:
    api = canned(PLAIN)
    system = api.answers["system"]
    assert isinstance(system, System)
    system.clock_ahead = 5 * 365 * 86_400
    async with served(api) as url:
        page = await opened(url)
        panel = page.locator("#window")
        for words in (
            "lifetime90.0 d", "oldest page89.9 d old", "carried21.4 %", "requests to forget7,000 decided",
            "expire late7,000 pages, by up to 5.0 h", "waiting7,000, the oldest for 2.0 h",
        ):  # fmt: skip
            await expect(panel).to_contain_text(words)
        await expect(page.locator("#notice")).to_contain_text(
            "The clock of the broker that leads the journal is 1825.0 d ahead of the judge's."
        )
        system.window, system.clock_ahead, system.forgetting = Window(600), 0, Forgetting(1, 0)
        await expect(panel).to_contain_text("oldest page–carried–expire late–")
        await expect(panel).to_contain_text("waitingnone")
        await expect(page.locator("#notice")).to_be_hidden()
        system.window = None
        await expect(panel).not_to_contain_text("lifetime")
        system.forgetting = None
        await expect(page.locator("#window-panel")).to_be_hidden()


@pytest.mark.night
async def test_what_is_shown_is_offered_as_a_file(opened: Callable[..., Any]) -> None:
    api = canned(PLAIN)
    async with served(api) as url:
        page = await opened(f"{url}#range=1h&verdicts=duplicate,rejected")
        await expect(page.locator("#export-lag a")).to_have_count(2)
        links = await page.eval_on_selector_all(
            ".export a", "all => all.map((a) => [a.ariaLabel, a.getAttribute('href')])"
        )
        shown = f"from={NOON}&to={NOON + 300}"
        assert dict(links) | {
            "Verdicts over time as CSV": f"/api/v1/figures?{shown}&format=csv",
            "Similarities as JSON": f"/api/v1/figures?{shown}&part=similarities&format=json",
            "Hosts as CSV": f"/api/v1/hosts?{shown}&limit=200&format=csv",
            "Latest verdicts as JSON": "/api/v1/verdicts?verdict=duplicate&verdict=rejected"
            "&limit=200&format=json",
        } == dict(links)
        async with page.expect_download() as download:
            await page.locator("#export-hosts a").first.press("Enter")
        assert (await download.value).url.endswith(f"/api/v1/hosts?{shown}&limit=200&format=csv")


@pytest.mark.night
async def test_a_logarithmic_scale_shows_small_counts_beside_large_ones(
    opened: Callable[..., Any], shot: Callable[..., Any]
) -> None:
    api = canned(PLAIN)
    figures = api.answers["figures"]
    assert isinstance(figures, Figures)
    figures.series.verdicts["unique"] = [500_000] * 60
    figures.series.verdicts["rejected"] = [0, 1] * 30
    async with served(api) as url:
        page = await opened(url, viewport={"width": 1400, "height": 900}, color_scheme="light")
        await expect(page.locator("#series .uplot")).to_be_visible()
        red = await page.evaluate(RED)
        await page.locator("#scale").press("Enter")
        await expect(page.locator("#scale")).to_have_attribute("aria-pressed", "true")
        assert await page.evaluate(RED) > red + 100
        await shot(page, "logarithmic")
        await expect(page).to_have_url(re.compile("scale=log"))
        other = await opened(page.url)
        await expect(other.locator("#scale")).to_have_attribute("aria-pressed", "true")
        await expect(other.locator("#lag .uplot")).to_be_visible()
        await page.locator("#scale").press("Enter")
        assert await page.evaluate(RED) == red


async def test_restarts_and_rebalances_are_marked_and_listed(opened: Callable[..., Any]) -> None:
    api = canned(PLAIN)
    async with served(api) as url:
        page = await opened(url, color_scheme="light")
        await expect(page.locator("#changes-count")).to_have_text(
            "▲ 2 starts and ◆ 1 rebalance in this range"
        )
        with_marks = await page.evaluate(MARKS)
        await page.locator("#changes summary").press("Enter")
        rows = page.locator("#changes-list li")
        await expect(rows).to_have_count(3)
        await expect(rows.nth(1)).to_have_text(
            "2026-01-02 12:00:41 ◆ worker: 1 joined and 1 left; 2 processes in the group"
        )
        await expect(page.locator("#changes-rest")).to_contain_text("Older ones were dropped.")

        found = api.answers["changes"]
        assert isinstance(found, Changes)
        found.changes, found.left_out, found.complete = [], 0, True
        await page.select_option("#range", "1h")
        await expect(page.locator("#changes")).to_be_hidden()

        async def fewer() -> bool:
            return bool(await page.evaluate(MARKS) < with_marks)

        await until(fewer)

"""Hostile URLs of crawled pages are shown as text, are not links to the page, and do not break the layout."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pytest
from playwright.async_api import Page, expect

from stream.dashboard.answers import SeenVerdict, Verdicts
from tests.browser.canned import PLAIN, Canned, PageContent, canned, served, verdict
from tests.browser.test_layout import MEASURE, filled
from tests.waiting import HANG_SECONDS

PRESSED_MS: Final = 5000
"""After which a key that did nothing is pressed again."""
SCRIPT = "<script>window.hacked=1</script>\"'><img src=//evil.example/x onerror=window.hacked=2>"
HOSTILE = PageContent(
    urls=(
        f"http://evil.example/{SCRIPT}",
        "javascript:window.hacked=3//http://a.example/",
        "\u202ehttps://elpmaxe.live/\u2066\u200b",
        f"data:text/html,{SCRIPT}",
        f"https://{'x' * 10_000}.example/",
        " jAvAsCrIpT:window.hacked=4",
        "file:///etc/passwd",
        "https://good.example@evil.example/",
    ),
    hosts=(SCRIPT, "javascript:window.hacked=5", "\u202eelpmaxe.live", "x" * 10_000),
    namespace="hostile",
    detail=SCRIPT,
)


async def open_watched(opened: Callable[..., Any], url: str, elsewhere: list[str]) -> Page:
    page = await opened("about:blank", viewport={"width": 1400, "height": 900})
    page.on("request", lambda asked: asked.url.startswith(url) or elsewhere.append(asked.url))
    await page.add_init_script(
        "addEventListener('securitypolicyviolation', (e) => console.error(`refused ${e.violatedDirective}`))"
    )
    await page.goto(url)
    return page


async def test_hostile_content_is_text_and_asks_nobody(opened: Callable[..., Any]) -> None:
    api, elsewhere = canned(HOSTILE), []
    api.answers["figures"].reasons = {SCRIPT: 3, "__proto__": 2, "constructor": 1}  # type: ignore[union-attr]
    rejected = [verdict(HOSTILE, i, "rejected", reason=SCRIPT) for i in range(8)]
    api.answers["verdicts"] = Verdicts([SeenVerdict(9 - i, each) for i, each in enumerate(rejected)], None)
    async with served(api) as url:
        page = await open_watched(opened, url, elsewhere)
        await filled(page, api)
        await page.locator("#latest summary").first.click()
        assert await page.evaluate("window.hacked") is None
        ours = "header, h1, p, form, label, select, main, section, h2, h3, div, table, tr, td, ul, ol, li, dl"
        assert (
            await page.locator(f"main :is(script, iframe, object, style, img), :is({ours})[onerror]").count()
            == 0
        )
        assert "window.hacked=2" in await page.inner_text("#latest")
        assert elsewhere == []
        assert await page.evaluate(MEASURE) == []


async def test_links_out_are_marked_and_tell_nothing(opened: Callable[..., Any]) -> None:
    api = canned(HOSTILE)
    async with served(api) as url:
        page = await opened(url)
        await filled(page, api)
        links = await page.evaluate(
            "[...document.querySelectorAll('a')].filter((each) => each.origin !== location.origin)"
            ".map(({ protocol, host, rel, target, textContent, ariaLabel }) =>"
            " ({ protocol, host, rel, target, textContent, ariaLabel }))"
        )
        assert "evil.example" in {each["host"] for each in links}
        for each in links:
            assert each["protocol"] in ("http:", "https:")
            assert {"noreferrer", "noopener"} <= set(each["rel"].split())
            assert each["target"] == "_blank"
            assert each["textContent"] == "↗"
            assert each["ariaLabel"] == f"Leave the dashboard: open {each['host']} in a new tab"
        near = page.locator("#latest .like", has_text="similarity 0.724 to ").first
        assert await near.locator("a").count() >= 1, "what a unique page is nearest to"
        # Every other link stays in the dashboard: a fragment, or the API.
        inside = await page.eval_on_selector_all(
            "a:not(.outside)", "all => all.map((a) => a.getAttribute('href'))"
        )
        assert {href[0] for href in inside} == {"#", "/"}


@pytest.mark.night
async def test_a_verdict_leads_to_the_look_up_and_back(opened: Callable[..., Any]) -> None:
    api = canned(PLAIN)
    async with served(api) as url:
        page = await opened(url)
        await expect(page.locator("#latest tbody tr")).to_have_count(30)
        async with page.expect_response(lambda answer: "range=1h" in answer.url):
            await page.select_option("#range", "1h")
        link = page.locator("#latest tbody tr").nth(1).locator("a:not(.outside)").first
        found = page.locator("#found h3").first
        async with asyncio.timeout(HANG_SECONDS):
            while not await found.is_visible():  # the row may be drawn again between the focus and the key
                await link.press("Enter")
                with suppress(AssertionError):
                    await expect(found).to_be_visible(timeout=PRESSED_MS)
        await expect(page.locator("#found")).to_be_focused()
        await expect(page.locator("#lookup-panel")).to_be_in_viewport()
        assert json.loads(lookups(api)[-1]) == {"url": PLAIN.urls[1]}
        assert len(page.context.pages) == 1

        # The address is one to send to somebody, and going back is going back.
        shared = page.url
        await page.go_back()
        await expect(page.locator("#range")).to_have_value("1h")
        other = await opened(shared)
        await expect(other.locator("#found h3").first).to_be_visible()
        await expect(other.locator("#lookup-url")).to_have_value(PLAIN.urls[1])
        await expect(other.locator("#range")).to_have_value("1h")


@pytest.mark.night
async def test_a_rejected_verdict_leads_to_its_reason(opened: Callable[..., Any]) -> None:
    api = canned(PLAIN)
    rejected = verdict(PLAIN, 4, "rejected", url=None)
    api.answers["verdicts"] = Verdicts([SeenVerdict(1, rejected)], None)
    async with served(api) as url:
        page = await opened(url)
        row = page.locator("#latest tbody tr")
        await expect(row).to_contain_text("no URL")
        assert await row.locator("a").count() == 0
        await row.locator("summary").click()
        await expect(row).to_contain_text("names neither HTML nor text")
        await expect(row).to_contain_text("neardup.pages, partition 1, offset 4")
        await expect(row).to_contain_text("neardup.rejected")

        # New verdicts come above; what somebody opened, and where they are, stays.
        await row.locator("summary").focus()
        await api.news.put(Verdicts([SeenVerdict(2, verdict(PLAIN, 1))], None))
        await expect(page.locator("#latest tbody tr")).to_have_count(2)
        await expect(page.locator("#latest tbody tr").nth(1).locator("p")).to_be_visible()
        await expect(page.locator("#latest summary")).to_be_focused()


@pytest.mark.parametrize("width", [390, 1400])
async def test_a_url_cannot_reorder_or_move_what_stands_beside_it(
    width: int, opened: Callable[..., Any]
) -> None:
    """Screenshots of the same run: the other cells look the same as beside a plain URL of that length."""
    overrides = "\u202e\u2066\u202d\u2067\u202b\u061c"
    spelled = "".join(f"\\u{{{ord(each):x}}}" for each in overrides)
    pictures = []
    for tail in (overrides, spelled):
        words = PageContent(
            urls=(f"https://evil.example/{tail}cod.exe", "http://a.example/"), hosts=("evil.example",)
        )
        async with served(canned(words)) as url:
            page = await opened(url, viewport={"width": width, "height": 900}, reduced_motion="reduce")
            row = page.locator("#latest tbody tr").nth(2)
            await expect(row).to_contain_text(f"https://evil.example/{spelled}cod.exe")
            pictures.append(await row.screenshot())
    assert pictures[0] == pictures[1]


def lookups(api: Canned) -> list[str]:
    return [each for each in api.asked if each.startswith("{")]

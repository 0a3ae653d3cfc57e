"""The pages of a host and of a cluster: what they show, that it has room and that it can be reached."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from msgspec import structs
from playwright.async_api import Page, expect

from stream.dashboard.answers import Clusters, Election, Kept, Lookup
from tests.browser.canned import JOURNAL, PLAIN, Canned, PageContent, canned, served
from tests.browser.test_hostile_content import HOSTILE, SCRIPT
from tests.browser.test_layout import KINDS, MEASURE, unfold, violations
from tests.night import cases

PHONE = 360
CLUSTER = f"{JOURNAL}.3.1"


async def filled(page: Page, api: Canned, url: str, words: PageContent | None) -> None:
    """Open the host's page and wait until it is filled."""
    await page.goto(f"{url}host#{urlencode({'host': words.hosts[0] if words else 'a.example'})}")
    await unfold(page)
    for panel in ("#anchors", "#duplicates", "#reasons", "#latest"):
        await expect(page.locator(panel).locator(":scope > :is(table, .empty)").first).to_be_visible()
    await expect(page.locator("#series").locator(":scope > :is(.uplot, .empty)")).to_be_visible()
    assert any(each.startswith("/api/v1/neighbours?host=") for each in api.asked)


@pytest.mark.parametrize(
    ("content", "width"),
    cases([*((each, PHONE) for each in KINDS), ("long", 1400)], by_day=[("long", PHONE), ("empty", PHONE)]),
)
async def test_both_pages_have_room_and_can_be_read(
    content: str, width: int, opened: Callable[..., Any], shot: Callable[..., Any]
) -> None:
    words = KINDS[content]
    api = canned(words)

    async def check(page: Page, name: str) -> None:
        await page.emulate_media(color_scheme="light")
        await shot(page, f"{name}-{content}-{width}-light")
        assert await page.evaluate(MEASURE) == []
        assert await violations(page) == []  # which leaves it dark
        await shot(page, f"{name}-{content}-{width}-dark")
        assert await page.evaluate(MEASURE) == []

    async with served(api) as url:
        page = await opened("about:blank", viewport={"width": width, "height": 900})
        await filled(page, api, url, words)
        await check(page, "host")
        if words is not None:
            await page.goto(f"{url}cluster#cluster={CLUSTER}")
            await page.locator("#compare").press("Enter")
            await expect(page.locator("#comparison .runs")).to_have_count(2)
            await check(page, "cluster")


@pytest.mark.night
async def test_the_kept_page_of_a_cluster_is_marked_and_says_why(opened: Callable[..., Any]) -> None:
    """Where it is not stored, as a later duplicate than those that are, it is listed."""
    api = canned(PLAIN)
    clusters, answer = api.answers["clusters"], api.answers["lookup"]
    assert isinstance(clusters, Clusters)
    assert isinstance(answer, Lookup)
    assert answer.cluster is not None
    async with served(api) as url:
        page = await opened(url)
        await expect(page.locator("#clusters tbody tr")).to_have_count(3)
        first, second, third = await page.locator("#clusters tbody tr").all()
        await expect(first).to_contain_text(f"kept: {PLAIN.urls[1]}")
        await expect(second).not_to_contain_text("kept")
        await expect(third).to_contain_text("no page is left")
        await expect(page.locator("#clusters")).to_contain_text(
            "Kept pages are marked; the policy is longest."
        )
        figures = [structs.replace(each, kept=None) for each in clusters.clusters]
        for election, said in (("none", "No elector is set up here"), ("reading", "is being read")):
            api.answers["clusters"] = Clusters(figures, Election(election), len(figures), None)
            page = await opened(url)
            await expect(page.locator("#clusters")).to_contain_text(said)
            await expect(page.locator("#clusters tbody")).not_to_contain_text("kept")

        rows, stored = page.locator("#pages tbody tr"), 1 + len(answer.cluster.members)
        marked = page.locator("#pages tbody tr", has=page.locator("strong", has_text="kept"))
        await page.goto(f"{url}cluster#cluster={CLUSTER}")
        await expect(page.locator("#kept")).to_contain_text("a better URL joined the cluster")
        await expect(page.locator("#kept a").first).to_have_text(PLAIN.urls[1])
        await expect(marked).to_have_count(1)
        await expect(marked).to_contain_text(PLAIN.urls[1])
        await expect(rows).to_have_count(stored)
        late = Kept("https://late.example/", f"{JOURNAL}.9.9", "joined", 4, "2026-01-02T12:00:01.010Z")
        answer.cluster.kept = late
        await page.reload()
        await expect(rows).to_have_count(stored + 1)
        await expect(marked).to_have_count(1)
        await expect(marked).to_contain_text("late.example")


@pytest.mark.night
async def test_a_host_is_reached_from_the_overview_and_leads_back(opened: Callable[..., Any]) -> None:
    api = canned(PLAIN)
    async with served(api) as url:
        page = await opened(url)
        await page.locator("#hosts a").first.press("Enter")
        await expect(page.locator("#host-name")).to_have_text(PLAIN.hosts[0])
        await expect(page.locator(".tile").first).to_contain_text("Pages")
        await expect(page.locator("#anchors tbody tr").first).to_contain_text("this host itself")
        await expect(page.locator("#neighbours-hint")).to_contain_text(
            "17 hosts with fewer pages are left out"
        )
        await page.select_option("#range", "1h")
        await expect(page).to_have_url(re.compile(r"host#host=mirror\.example\.net&range=1h$"))
        await page.locator("#anchors a").first.click()
        await expect(page.locator("#host-name")).to_have_text(PLAIN.hosts[1])
        await page.click("#overview")
        await expect(page.locator("#host")).to_have_value(PLAIN.hosts[1])
        await page.goto(f"{url}host")
        await expect(page.locator("#notice")).to_contain_text("names no host")

        # A URL in its list is looked up on the overview.
        await page.goto(f"{url}host#host=a.example")
        await page.locator("#latest tbody a:not(.outside)").first.click()
        await expect(page.locator("#lookup-url")).to_have_value(PLAIN.urls[0])
        await expect(page.locator("#found h3").first).to_be_visible()


@pytest.mark.night
async def test_two_members_of_a_cluster_are_compared_side_by_side(opened: Callable[..., Any]) -> None:
    api = canned(PLAIN)
    async with served(api) as url:
        page = await opened(url, viewport={"width": 1400, "height": 900})
        await page.locator("#clusters button").first.click()
        await page.locator("#clusters a", has_text="cluster").first.click()
        await expect(page.locator("#cluster-hint")).to_contain_text("8 pages. Superseded")
        rows = page.locator("#pages tbody tr")
        await expect(rows).to_have_count(4)
        await expect(rows.first).to_contain_text("anchor")
        await expect(page.locator("#pages .like", has_text="judged again")).to_have_count(1)
        former = page.locator("#pages li")
        await expect(former).to_have_count(2)
        await expect(former.first.locator("a", has_text="cluster")).to_have_attribute(
            "href", re.compile(rf"cluster={JOURNAL}\.5\.1$")
        )
        await expect(former.last).to_contain_text("too little text")
        await rows.nth(2).locator("[name=other]").focus()
        await page.keyboard.press("Space")
        await page.keyboard.press("Enter")
        sides = page.locator("#comparison .side")
        await expect(sides).to_have_count(2)
        await expect(page.locator("#comparison")).to_be_focused()
        boxes = [await each.bounding_box() for each in await sides.all()]
        assert boxes[0]["y"] == boxes[1]["y"]
        assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
        assert api.asked[-1] == (f"/api/v1/clusters/{CLUSTER}/comparison?one={CLUSTER}&other={JOURNAL}.3.8")
        await expect(page.locator("#comparison")).to_contain_text("only in page A")

        # The address names the comparison, for somebody else.
        other = await opened(page.url)
        await expect(other.locator("#comparison .side")).to_have_count(2)


async def test_a_login_returns_to_the_page_and_to_no_other_site(
    opened: Callable[..., Any], shot: Callable[..., Any]
) -> None:
    """Who knows the token sees the page, and may log out."""
    token = "<b>correct</b> horse battery"  # noqa: S105
    async with served(canned(PLAIN), dashboard_token=token) as url:
        for asked, reached in (
            ("#range=all", "#range=all"),
            ("host#host=a.example", "host#host=a.example"),
            ("login?to=//evil.example/#host=a.example", "#host=a.example"),
        ):
            page = await opened(url + asked)
            await expect(page).to_have_url(re.compile("/login"))
            assert await violations(page) == []
            await page.fill("#token", "wrong")
            await page.keyboard.press("Enter")
            await expect(page.locator("#refused")).to_have_text("this is not the dashboard's token")
            await shot(page, "login")
            assert await page.evaluate(MEASURE) == []
            await page.fill("#token", token)
            await page.keyboard.press("Enter")
            await page.wait_for_selector("#series .uplot")
            assert page.url.startswith(url + reached), page.url
            assert await page.evaluate("document.cookie") == ""
        await page.click("#log-out")
        await expect(page.locator("#login")).to_be_visible()
        await page.goto(url)
        await expect(page).to_have_url(re.compile("/login"))


async def test_hostile_hosts_and_members_are_text(opened: Callable[..., Any]) -> None:
    api = canned(HOSTILE)
    found = api.answers["lookup"]
    assert isinstance(found, Lookup)
    async with served(api) as url:
        page = await opened("about:blank")
        await filled(page, api, url, HOSTILE)
        await expect(page.locator("#host-name")).to_contain_text("window.hacked=1")
        await page.goto(f"{url}cluster#{urlencode({'cluster': SCRIPT, 'one': SCRIPT, 'other': SCRIPT})}")
        await expect(page.locator("#comparison .runs")).to_have_count(2)
        await expect(page.locator("#cluster-id")).to_contain_text("window.hacked=1")
        assert await page.evaluate("window.hacked") is None
        assert await page.locator("main :is(script, img, iframe)").count() == 0
        links = await page.eval_on_selector_all("main a", "all => all.map((a) => a.protocol)")
        assert set(links) <= {"http:", "https:"}

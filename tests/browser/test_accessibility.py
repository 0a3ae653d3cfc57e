"""axe finds no accessibility violations in any state of the page."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, product
from pathlib import Path
from typing import Any

import axe_playwright_python  # type: ignore[import-untyped]
import pytest
from playwright.async_api import Page

from tests.browser.canned import canned, served
from tests.browser.test_layout import KINDS, WIDTHS, filled
from tests.night import cases

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text("utf-8")
"""axe-core, as it comes with the package; its own runner would load it anew for each question."""
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
VIOLATIONS = """
async (rules) => (await axe.run(document, { runOnly: rules, resultTypes: ["violations"] }))
  .violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html.slice(0, 200))])
"""


async def violations(page: Page) -> Any:
    """What axe finds, light and dark."""
    await page.evaluate(AXE)
    found = []
    for theme in ("light", "dark"):
        await page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        found += await page.evaluate(VIOLATIONS, RULES)
    return found


@pytest.mark.parametrize(
    ("content", "width"), cases(product(KINDS, WIDTHS), by_day=[*zip(KINDS, cycle(WIDTHS), strict=False)])
)
async def test_axe_finds_nothing_on_the_page(content: str, width: int, opened: Callable[..., Any]) -> None:
    api = canned(KINDS[content])
    async with served(api) as url:
        page = await opened(url, viewport={"width": width, "height": 900})
        await filled(page, api)
        if content != "empty":
            await page.locator("#latest summary").first.click()
        await page.select_option("#range", "custom")
        await page.evaluate("document.getElementById('notice').hidden = false")
        await page.evaluate("document.getElementById('notice').textContent = 'The brokers do not answer.'")
        assert await violations(page) == []


async def test_axe_finds_nothing_where_one_logs_in(opened: Callable[..., Any]) -> None:
    async with served(canned(None)) as url:
        assert await violations(await opened(f"{url}login")) == []

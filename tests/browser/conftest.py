"""A real Chromium, a dashboard with verdicts to look at, and a place for screenshots."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from stream.settings import Settings
from tests.kafka.worker_helpers import create
from tests.waiting import HANG_SECONDS

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a browser these tests say so, and are skipped."""
    if CHROMIUM is None:
        why = pytest.mark.skip(reason="NO BROWSER: install Debian's chromium (`apt-get install chromium`)")
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(why)


@pytest.fixture
async def settings(settings: Settings) -> Settings:
    """A deployment with topics, whose dashboard takes a free port."""
    settings = settings.model_copy(update={"dashboard_port": 0})
    await create(settings)
    return settings


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=list(FLAGS), env={**os.environ, "HOME": str(tmp_path)}
        )
        try:
            yield running
        finally:
            await running.close()
    await asyncio.sleep(0)


@pytest.fixture
async def opened(browser: Browser) -> AsyncIterator[Callable[..., Any]]:
    """`await opened(url, **context)`: the page, loaded; what its console complains of fails the test."""
    complaints: list[str] = []

    async def open_page(url: str, **context: Any) -> Page:
        page = await (await browser.new_context(**context)).new_page()
        page.set_default_timeout(1000 * HANG_SECONDS)
        expect.set_options(timeout=1000 * HANG_SECONDS)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        await page.goto(url)
        return page

    yield open_page
    expected = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "status of 4")
    assert not [each for each in complaints if not any(known in each for known in expected)]


@pytest.fixture
def shot() -> Callable[..., Any]:
    """`await shot(page, name)`: a screenshot of the whole page, for people to look at."""
    directory = Path(os.environ.get("NEARDUP_SCREENSHOTS", SCREENSHOTS))
    directory.mkdir(parents=True, exist_ok=True)

    async def take(page: Page, name: str) -> Path:
        path = directory / f"{name}.png"
        await page.evaluate("scrollTo(0, 0)")
        await page.screenshot(path=path, full_page=True)
        return path

    return take

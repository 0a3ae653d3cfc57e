"""Requests to forget pages: no faults, but roles are killed while they are decided and erased."""

from __future__ import annotations

from typing import Final

from tests.chaos.scene import Fault, Scene
from tests.chaos.schedule import PlannedFault

NEWEST: Final = 500
"""Pages of which some are forgotten: those that were sent last, which come again."""
TRIES: Final = 5


async def forget(scene: Scene, plan: PlannedFault) -> bool:
    """Request that the pages of some URLs be forgotten. If that fails, some of it may have been requested."""
    pages = [page for _, page in scene.load.given.stored_pages()][-NEWEST:]
    urls = sorted({page.url for page in pages if not page.malformed})
    if not urls:
        return False
    some = plan.rng.sample(urls, min(len(urls), plan.rng.choice((1, 2, 8))))
    for _ in range(TRIES):
        if await scene.neardup("forget", *some):
            return True
    return False


FAULTS: Final[dict[str, Fault]] = {"forget": forget}

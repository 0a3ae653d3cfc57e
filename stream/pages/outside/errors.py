"""Errors of stores and registries that messages refer to.

A process is killed when a page exceeds its deadline, but a slow or unavailable store is not the page's fault.
So nothing is fetched while a page is being read: a FetchNeededError passes the fetch to the caller, who stops
the page's clock, fetches, and tries again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from stream.errors import NeardupError


class UnavailableError(NeardupError):
    """A store or registry is unreachable or refuses our requests. No page is at fault; try again later."""


class FetchNeededError(NeardupError):
    """A page needs something that is not fetched yet. Call `fetch`, which may take long and raises
    UnavailableError, then read the page again."""

    def __init__(self, what: str, fetch: Callable[[], None]) -> None:
        super().__init__(f"{what} is not fetched yet")
        self.what: Final = what
        self.fetch: Final = fetch

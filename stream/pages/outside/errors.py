"""The two ways in which something outside of a message may not be at hand.

A page has a deadline, and its process is killed at it. A store or registry that is away is not the page's
fault: so whatever waits for one is handed to the caller, who does it on nobody's time and then asks again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from stream.errors import NeardupError


class AwayError(NeardupError):
    """A store or registry cannot be reached, or refuses us: try again later, no page is at fault."""


class WantedError(NeardupError):
    """A page cannot be read before `fetch` was called; that may take its time, and raises AwayError."""

    def __init__(self, what: str, fetch: Callable[[], None]) -> None:
        super().__init__(f"{what} is not fetched yet")
        self.what: Final = what
        self.fetch: Final = fetch

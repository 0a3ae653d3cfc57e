"""Futures whose errors may come when nobody waits for them any more."""

from __future__ import annotations

import asyncio
from typing import TypeVar

F = TypeVar("F", bound=asyncio.Future)  # type: ignore[type-arg]


def retrieved(future: F) -> F:
    """The future itself, whose exception counts as retrieved even if whoever waits for it ends first. Else
    asyncio logs it, as a second traceback after that of the error which ended the process."""
    future.add_done_callback(_retrieve)
    return future


def _retrieve(future: asyncio.Future[object]) -> None:
    if not future.cancelled():
        future.exception()

"""Texts of pages and crawls, for a terminal."""

from __future__ import annotations

import re
from typing import Final

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Replace control characters: the URL of a stranger's page could move the cursor, or change the title."""
    return _CONTROL.sub("\ufffd", text)


def as_markup(text: str) -> str:
    """Return a text as Rich prints it, without control characters."""
    from rich.markup import escape

    return escape(printable(text))

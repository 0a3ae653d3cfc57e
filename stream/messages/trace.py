"""The `traceparent` header of a page message (W3C Trace Context), which is copied to its verdict."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

TRACEPARENT: Final = "traceparent"
LONGEST: Final = 256
"""Maximum length accepted. Later versions of the standard may append fields."""

_VALID: Final = re.compile(
    rb"(?!ff|00.{54})[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?"
)


def traceparent_of(headers: Iterable[tuple[str, bytes | None]]) -> str | None:
    """Return the `traceparent` of a message's headers, or None if it is absent or malformed."""
    for name, value in headers:
        if name == TRACEPARENT and value and len(value) <= LONGEST and _VALID.fullmatch(value):
            return value.decode("ascii")
    return None

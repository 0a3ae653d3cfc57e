"""Page times: milliseconds since the epoch, within the range that RFC 3339 can represent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

EARLIEST: Final = -62_135_596_800_000
"""0001-01-01"""
LATEST: Final = 253_402_300_799_999
"""9999-12-31"""


def writable(moment: int) -> bool:
    """Return whether the time lies in the years 0001 to 9999."""
    return EARLIEST <= moment <= LATEST


def rfc3339(milliseconds: int) -> str:
    """Format milliseconds since the epoch as RFC 3339 in UTC."""
    moment = datetime.fromtimestamp(milliseconds // 1000, UTC).replace(tzinfo=None)
    # strftime's %Y does not pad years below 1000 on all platforms.
    return f"{moment.isoformat()}.{milliseconds % 1000:03d}Z"


def to_the_second(seconds: float) -> str:
    """Format seconds since the epoch as RFC 3339 in UTC, without the fraction."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

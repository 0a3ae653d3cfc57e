"""Page times: milliseconds since the epoch, within the range that RFC 3339 can represent."""

from __future__ import annotations

from typing import Final

EARLIEST: Final = -62_135_596_800_000
"""0001-01-01"""
LATEST: Final = 253_402_300_799_999
"""9999-12-31"""


def writable(moment: int) -> bool:
    """Whether the time lies in the years 0001 to 9999."""
    return EARLIEST <= moment <= LATEST

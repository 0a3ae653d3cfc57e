"""Times of pages: milliseconds since the epoch, in the range that RFC 3339 can write."""

from __future__ import annotations

from typing import Final

EARLIEST: Final = -62_135_596_800_000
"""0001-01-01"""
LATEST: Final = 253_402_300_799_999
"""9999-12-31"""


def writable(moment: int) -> bool:
    """Whether the time has a year of four digits, from 0001 on."""
    return EARLIEST <= moment <= LATEST

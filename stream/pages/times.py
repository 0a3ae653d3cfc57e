"""Page times: milliseconds since the epoch, within the range that RFC 3339 can represent."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from math import floor
from typing import Final

import msgspec

from stream.errors import PageError

EARLIEST: Final = -62_135_596_800_000
"""0001-01-01"""
LATEST: Final = 253_402_300_799_999
"""9999-12-31"""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_NO_TIME: Final = frozenset(("", "nan", "nat", "none", "null"))
"""Texts that programs write for a time that is missing: Python, pandas, SQL."""
_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", re.ASCII)
_SLASHES: Final = re.compile(r"(\d{4})/(\d\d)/(\d\d)", re.ASCII)
_ZONE: Final = re.compile(r"\s*(?:([+-]\d\d:?\d\d)\s*)?(?:UTC|GMT|Z)?$", re.ASCII | re.IGNORECASE)
_LONGEST: Final = 100
"""Characters of the longest text that is read as a time."""


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


def milliseconds(moment: datetime) -> int:
    """Return milliseconds since the epoch, rounded down; a datetime without UTC offset is local time. Raises
    ValueError and OverflowError for a local time that UTC would have in year 0 or 10000."""
    if moment.tzinfo is not None:
        return (moment - _EPOCH) // _MILLISECOND
    return int(moment.replace(microsecond=0).timestamp()) * 1000 + moment.microsecond // 1000


def page_time(moment: object) -> int | None:
    """Return the time of a page: milliseconds since the epoch, rounded down, or None.

    A number, also one that is written as text, is milliseconds. A text is a time in RFC 3339 or another form
    of ISO 8601, or as HTTP and mail have it; without UTC offset it is UTC. An empty text, NaN and other words
    for what is missing are None. Raises PageError `wrong_type` for all else, and for a time outside the years
    1 to 9999.
    """
    if moment is None:
        return None
    try:
        parsed = _of_text(moment) if isinstance(moment, str) else moment
        if isinstance(parsed, datetime):
            parsed = milliseconds(parsed)
        elif isinstance(parsed, float):
            if parsed != parsed:
                return None
            parsed = floor(parsed)
    except (ValueError, OverflowError):
        raise PageError("wrong_type", f"fetched_at: {moment!r:.60} is out of range") from None
    if parsed is None:
        return None
    if type(parsed) is not int or not writable(parsed):
        raise PageError(
            "wrong_type",
            f"fetched_at: {moment!r:.60} is neither a time nor milliseconds of the years 1 to 9999",
        )
    return parsed


def _of_text(text: str) -> datetime | int | float | str | None:
    """Return the time or the number that a text is; the text itself if it is neither."""
    with suppress(msgspec.ValidationError):
        moment = msgspec.convert(text, datetime)
        if moment.tzinfo is not None:
            return moment
    text = text.strip()
    if text.lower() in _NO_TIME:
        return None
    if len(text) > _LONGEST:
        return text
    if number := _NUMBER.fullmatch(text):
        return float(text) if number[1] or number[2] else int(text)
    with suppress(ValueError):
        written = _ZONE.sub(r"\1", _SLASHES.sub(r"\1-\2-\3", text, count=1), count=1)
        return _utc(datetime.fromisoformat(written))
    with suppress(ValueError, IndexError, TypeError, OverflowError):  # email.utils raises them
        return _utc(parsedate_to_datetime(text))
    return text


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)

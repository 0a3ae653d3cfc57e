"""The fields of page messages: from a table's rows, whose columns have their names, and from a `Page`.

A value that no message can have becomes an object, which no field of a message may be. So the validation of
messages rejects the page, whichever way it comes, for the same reason.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from datetime import datetime
from math import floor, isfinite, isnan
from numbers import Real
from typing import Any, Final, SupportsIndex

from stream.pages.page import CONTENT, Page, quality_of
from stream.text.surrogates import replace_surrogates

FIELDS: Final = (
    *("url", "html", "text", "body", "content_type", "charset", "fetched_at"),
    *("redirected_from", "canonical_url", "quality"),
)
"""Columns that are read; others are ignored."""


def message_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the page message of a row, by lower-case names; None has to be left out before.

    A binary `html`, `text` or `body` is the page's raw bytes, of which JSON makes base64; a string `body` is
    base64. An empty one beside another is none.
    """
    fields = {name: row[name] for name in (*FIELDS, "label") if name in row}
    written = [name for name in CONTENT if name in fields]
    present = [name for name in written if fields[name]] or written[:1]
    if len(present) == 1:
        for name in written:
            if name not in present:
                del fields[name]
    if len(present) == 1 and present != ["body"] and isinstance(fields[present[0]], bytes):
        fields["body"] = fields.pop(present[0])
        fields.setdefault("content_type", "text/html" if present == ["html"] else "text/plain")
    return fields


def fields_of_page(page: Page) -> dict[str, Any]:
    """Return the fields of the page message of a page: those that are set. The types of a `Page` are not
    checked when it is made. Lone surrogates become U+FFFD, as they do in a message."""
    return {name: _field(name, value) for name in FIELDS if (value := getattr(page, name)) is not None}


def fields_of_mapping(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the fields of the page message that a dict has, whose values may be of any type. Unlike a
    `Page`, it may have times in RFC 3339 or with a time zone, and `body` in base64."""
    fields: dict[str, Any] = {}
    for name in (*FIELDS, "content_encoding"):
        value = row.get(name)
        if isinstance(value, datetime) and name == "fetched_at":
            fields[name] = value.isoformat()
        elif isinstance(value, str) and name in ("fetched_at", "body", "content_encoding"):
            fields[name] = replace_surrogates(value)
        elif isinstance(value, bytes | bytearray | memoryview) and name in CONTENT:
            fields[name] = bytes(value)
        elif value is not None:
            fields[name] = _field(name, value)
    encoding = {name: fields[name] for name in fields if name == "content_encoding"}
    return message_fields(fields) | encoding


def name_field(name: object) -> Any:
    """Return the name of a text: a string, or an integer as its decimal digits."""
    try:
        if isinstance(name, SupportsIndex) and not isinstance(name, bool):
            name = str(operator.index(name))
    except (TypeError, ValueError):  # no integer after all, or one of thousands of digits
        pass
    return text_field(name)


def text_field(text: object) -> Any:
    """Return a text without lone surrogates, which become U+FFFD as they do in a message."""
    return replace_surrogates(text) if isinstance(text, str) else unreadable(type(text).__name__)


def time_field(milliseconds: int) -> Any:
    """Return `fetched_at` of a message. A time outside the years 1 to 9999 is rejected."""
    return milliseconds if milliseconds.bit_length() < 64 else unreadable("an integer beyond 64 bits")


def number_field(number: float) -> Any:
    """Return `fetched_at` of a message for a number that may have a fraction; None for NaN, which pandas has
    for a missing integer."""
    if isnan(number):
        return None
    return time_field(floor(number)) if isfinite(number) else unreadable(repr(number))


def quality_field(value: Any) -> Any:
    """Return `quality` of a message. What is no finite number becomes what a message says so by, as JSON has
    no such floats."""
    number = quality_of(value)
    return number if number is not None and isfinite(number) else unreadable(type(value).__name__)


def unreadable(why: str) -> dict[str, str]:
    """Return what a message has in place of a value that it cannot have. The page is rejected as
    `wrong_type`, or has no quality."""
    return {"unreadable": why}


def _field(name: str, value: Any) -> Any:
    if name == "body":
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
    elif name == "fetched_at":
        if isinstance(value, bool):
            return unreadable("bool")
        if hasattr(value, "__index__"):
            return time_field(operator.index(value))
        if isinstance(value, Real):
            return number_field(float(value))
        if isinstance(value, str):
            return replace_surrogates(value)
    elif name == "quality":
        return quality_field(value)
    else:
        return text_field(value)
    return unreadable(type(value).__name__)

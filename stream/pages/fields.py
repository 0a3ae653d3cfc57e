"""Page messages from the rows of a table, whose columns are the fields of a page message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from stream.pages.times import rfc3339

FIELDS: Final = (
    *("url", "html", "text", "body", "content_type", "charset", "fetched_at"),
    *("redirected_from", "canonical_url"),
)
"""Columns that are read; others are ignored."""
CONTENT: Final = ("html", "text", "body")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def message_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the page message of a row, by lower-case names; None has to be left out before.

    A binary `html`, `text` or `body` is the page's raw bytes, of which JSON makes base64; a string `body` is
    base64. A value of any other type becomes a string, which the message's validation rejects.
    """
    fields = {name: _field(row[name]) for name in FIELDS if name in row}
    for name in ("html", "text"):
        if isinstance(row.get(name), bytes):
            fields["body"] = fields.pop(name)
            fields.setdefault("content_type", "text/html" if name == "html" else "text/plain")
    return fields


def missing_columns(columns: Iterable[str]) -> str | None:
    """What a table lacks whose rows are no pages, for messages; None if it lacks nothing."""
    columns = list(columns)
    if "url" in columns and any(content in columns for content in CONTENT):
        return None
    return (
        f"no columns `url` and one of {', '.join(f'`{each}`' for each in CONTENT)};"
        f" it has {', '.join(columns) or 'none'}"
    )


def _field(value: Any) -> Any:
    match value:
        case datetime():
            moment = value if value.tzinfo else value.replace(tzinfo=UTC)
            return rfc3339((moment - _EPOCH) // timedelta(milliseconds=1))
        case date():
            return f"{value.isoformat()}T00:00:00Z"
        case str() | bytes() | int() | float():
            return value
        case _:
            return str(value)

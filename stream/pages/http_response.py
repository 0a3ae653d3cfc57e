"""A stored HTTP response: status, header fields and body, as servers send them and crawlers store them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from stream.pages.headers import END, MAX_HEADERS, header_fields

STATUS_LINE: Final = re.compile(
    rb"\s*(?:HTTP/[\d.]+|(?:HTTP|ICY)(?=[ \t]+\d{3}\b))[ \t]*(\d{3}\b)?[^\n]*(?:\n|\Z)", re.IGNORECASE
)
_COMMON: Final = frozenset({"content-length", "content-type", "date", "server"})
"""Header fields that tell a header without a status line from a body."""


class HttpResponse(NamedTuple):
    """A response as it is stored."""

    status: int
    """0 if its status line has no number, and 200 if it has none, which no server sends with an error."""
    fields: dict[str, str]
    """Header fields by names in lower case."""
    body: bytes
    """Encoded as it was sent, or decoded already."""


def http_response(content: bytes) -> HttpResponse:
    """Return the response in the content of a record, the last one if interim responses precede it."""
    if not (line := STATUS_LINE.match(content)):
        fields, body = _parts(content, 0)
        if fields.keys() & _COMMON:
            return HttpResponse(200, fields, content[body:])
        return HttpResponse(200, {}, content)
    fields, body = _parts(content, line.end())
    while line[1] and line[1].startswith(b"1") and (final := STATUS_LINE.match(content, body)):
        line = final
        fields, body = _parts(content, line.end())
    return HttpResponse(int(line[1] or 0), fields, content[body:])


def _parts(content: bytes, start: int) -> tuple[dict[str, str], int]:
    """Return the header fields from `start` on, and where the body begins."""
    end = END.search(content, max(0, start - 1), start + MAX_HEADERS)
    if end is None:
        return header_fields(content[start : start + MAX_HEADERS]), len(content)
    return header_fields(content[start : end.start()]), end.end()

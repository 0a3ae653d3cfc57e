"""The header Content-Type as browsers read it (WHATWG Fetch, "extract a MIME type"), and what bytes are
without one (WHATWG MIME Sniffing)."""

from __future__ import annotations

import functools
import re
from typing import Final, NamedTuple

from stream.text.decode import utf_16

MAX_CONTENT_TYPE: Final = 1024
"""Characters of a header that are read."""
BINARY_BYTES: Final = 1445
"""Bytes of a page by which text is told from other content."""

_VALUE: Final = re.compile(r'(?:[^",]|"(?:[^"\\]|\\.)*+(?:"|\\?\Z))++', re.DOTALL)
"""One of several values of a header, which commas separate."""
_TYPE: Final = re.compile(r"\s*+([!#$%&'*+.^_`|~\w-]++/[!#$%&'*+.^_`|~\w-]++)(?=[\s;(]|\Z)", re.ASCII)
_PARAMETER: Final = re.compile(
    r';([^;="]*+)(?:=\s*+(?:"((?:[^"\\]|\\.)*+)(?:"|\\?\Z)[^;]*+|([^;]*+)))?+', re.DOTALL
)
_UNKNOWN: Final = frozenset({"unknown/unknown", "application/unknown", "*/*"})
_MAGIC: Final = (b"%PDF-", b"%!PS-Adobe-")
_TEXT: Final = bytes({*b"\t\n\f\r\x1b", *range(0x20, 0x100)})
"""Bytes that stand in texts."""


class ContentType(NamedTuple):
    """What a header says."""

    kind: str | None
    """Type and subtype in lower case; None if the header names none, or one that says nothing."""
    charset: str | None
    """Label of a charset, as it is written."""


@functools.lru_cache(256)
def content_type(header: str | None) -> ContentType:
    """Read a header. Of several values the last one that is a type counts, as of several headers that are
    joined by commas."""
    kind = charset = None
    for value in _VALUE.findall((header or "")[:MAX_CONTENT_TYPE]):
        if (named := _TYPE.match(value)) is None or (one := named[1].lower()) == "*/*":
            continue
        label = _charset_of(value[named.end() :])
        charset = label or (charset if one == kind else None)
        kind = one
    return ContentType(None if kind in _UNKNOWN else kind, charset)


def is_binary(body: bytes) -> bool:
    """Whether bytes of no known type are no text: an image, an archive, a PDF."""
    start = body[:BINARY_BYTES]
    return (start.startswith(_MAGIC) or start.translate(None, _TEXT) != b"") and utf_16(body) is None


def _charset_of(parameters: str) -> str | None:
    for name, quoted, bare in _PARAMETER.findall(parameters):
        if name.strip().lower() == "charset" and (label := (quoted or bare).strip()):
            return str(label)
    return None

"""JSON as other programs write it, beyond what the standard allows.

A line that does not decode is decoded once more as the standard would have it: NaN and infinite numbers, as
Python writes them, are null; an escaped lone surrogate is U+FFFD, in names as well as in values; a value that
is nested deeper than DEEPEST is null; and a byte order mark does not count.
"""

from __future__ import annotations

import re
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")
DEEPEST: Final = 100
"""Objects and arrays within one another that are read. A bound of our own, since the stack's depends on who
calls."""
_BOM: Final = b"\xef\xbb\xbf"
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]|-?Infinity\b|NaN\b', re.DOTALL)
_ESCAPED: Final = re.compile(
    rb"\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|(\\u[dD][89a-fA-F][\da-fA-F]{2})|\\.",
    re.DOTALL,
)


def decode(decoder: msgspec.json.Decoder[T], document: bytes, numbers: bytes | None = None) -> T:
    """Decode JSON. A NaN or infinite number of the name `numbers` is an object, which is no number either.

    Raises msgspec.DecodeError, its subclass msgspec.ValidationError for what is of another type, and
    UnicodeDecodeError; RecursionError only if the caller has no stack left.
    """
    try:
        return decoder.decode(document)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        standard = _standard(bytes(document), numbers)
        if standard == document:
            raise
        return decoder.decode(standard)


def _standard(document: bytes, numbers: bytes | None) -> bytes:
    """Return the document as the standard has it, unless it has other faults."""
    document = document.removeprefix(_BOM)
    parts: list[bytes] = []
    name = b""
    depth = end = 0
    for token in _TOKEN.finditer(document):
        start, written = token.start(), token[0]
        first = written[:1]
        if first in b"[{":
            depth += 1
            if depth == DEEPEST + 1:
                parts += document[end:start], b"null"
        elif first in b"]}":
            depth -= 1
            if depth == DEEPEST:
                end = token.end()
        elif depth <= DEEPEST:
            parts.append(document[end:start])
            end = token.end()
            if first == b'"':
                parts.append(_ESCAPED.sub(_character, written) if b"\\u" in written else written)
                name = written[1:-1]
            else:
                parts.append(b"{}" if name == numbers else b"null")
    parts.append(b"" if depth > DEEPEST else document[end:])
    return b"".join(parts)


def _character(escaped: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if escaped[1] else escaped[0]

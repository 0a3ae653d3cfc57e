"""Header fields of web archives and of HTTP, as programs write them and not only as the standards say."""

from __future__ import annotations

import re
from typing import Final

END: Final = re.compile(rb"\n\r*\n")
"""The empty line behind header fields, whose lines end in CRLF or in LF alone."""
MAX_HEADERS: Final = 1 << 20
"""Bytes of the longest header that is read."""
_LISTS: Final = frozenset({"content-encoding", "content-type", "transfer-encoding", "link"})
"""Fields whose lines are one list; of other fields that are repeated, the first line counts."""


def header_fields(lines: bytes) -> dict[str, str]:
    """Return header fields by names in lower case. Lines that begin with a space go on with the field before
    them, and lines without a colon are ignored."""
    try:
        text = lines.decode()
    except UnicodeDecodeError:
        text = lines.decode("latin-1")
    fields: dict[str, str] = {}
    several: dict[str, list[str]] = {}
    """What fields of several lines consist of: joined once, as a server may send a hundred thousand."""
    name = ""
    for line in text.split("\n"):
        if line[:1] in (" ", "\t") and name:
            several.setdefault(name, [fields[name]]).append(f" {line.strip()}")
            continue
        name, colon, value = line.partition(":")
        if not colon:
            name = ""
            continue
        name = name.strip().lower()
        if name not in fields:
            fields[name] = value.strip()
        elif name in _LISTS:
            several.setdefault(name, [fields[name]]).append(f", {value.strip()}")
        else:
            name = ""
    for name, parts in several.items():
        fields[name] = "".join(parts).strip()
    return fields

"""The charset that a page declares of itself: in a `<meta>` element, or in an XML declaration (WHATWG HTML,
13.2.3.2).

Browsers search the first 1,024 bytes and decode by what they find; a later `<meta>` makes them begin again.
So the first one that is an element counts, wherever it stands: not in a comment, a script or a title.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

DECLARED_BYTES: Final = 262_144
"""Most bytes of a page that are searched."""
PRESCAN_BYTES: Final = 1024
"""Bytes in which a charset is to be declared."""
_LONGEST: Final = 4096
"""Longest attributes of a tag that are read, in bytes."""
_BLANK: Final = rb"[ \t\n\f\r]"
# Every pattern below ends at the end of the page at the latest, and gives nothing back (`*+`): linear time.
_ATTRIBUTE: Final = (
    rb"(?:" + _BLANK + rb"|/)*+([^ \t\n\f\r/>][^ \t\n\f\r/>=]*+)(?:" + _BLANK + rb"*+=" + _BLANK + rb"*+"
    rb"""(?:"([^"]*+)(?:"|\Z)|'([^']*+)(?:'|\Z)|([^ \t\n\f\r>]*+)))?+"""
)
_ATTRIBUTES: Final = re.compile(_ATTRIBUTE)
_PIECE: Final = re.compile(
    rb"<!--(?:-?>|.*?(?:--!?>|\Z))"
    rb"|<(/?+[a-z][^ \t\n\f\r/>]*+)((?:" + re.sub(rb"\((?!\?)", b"(?:", _ATTRIBUTE) + rb")*+)"
    rb"(?:" + _BLANK + rb"|/)*+(?:>|\Z)|<[!?/][^>]*+(?:>|\Z)",
    re.IGNORECASE | re.DOTALL,
)
"""A comment, a tag with its name and attributes, or a declaration."""
_RAW_ENDS: Final = {
    name: re.compile(rb"</" + name + rb"(?=[ \t\n\f\r/>])", re.IGNORECASE)
    for name in b"title style script textarea noscript noframes noembed iframe xmp plaintext".split()
}
"""Where the content of elements ends that has no tags."""
_OF_CONTENT: Final = re.compile(
    rb"""charset[ \t\n\f\r]*+=[ \t\n\f\r]*+(?:"([^"]*)"|'([^']*)'|([^ \t\n\f\r;"'][^ \t\n\f\r;]*+))""",
    re.IGNORECASE,
)
_XML: Final = re.compile(
    rb"""\s*+<\?xml[^>]{0,200}?\sencoding\s*+=\s*+(?:"([^">]*)"|'([^'>]*)')""", re.IGNORECASE
)


def labels_of_meta(body: bytes) -> Iterator[str]:
    """Yield the labels of charsets in the `<meta>` elements of a page."""
    body = body[:DECLARED_BYTES]
    at, end = body.find(b"<"), len(body)
    while 0 <= at <= end:
        if at >= PRESCAN_BYTES and end == len(body):  # most pages do not come so far
            end = body.lower().rfind(b"<meta")
        if (piece := _PIECE.match(body, at)) is None:
            at = body.find(b"<", at + 1)
            continue
        name, at = (piece[1] or b"").lower(), piece.end()
        if name == b"meta" and (label := _label_of(piece[2])):
            yield label.decode("latin-1")
        if raw_end := _RAW_ENDS.get(name):
            closed = raw_end.search(body, at)
            if closed is None or name == b"plaintext":
                return
            at = closed.start()
        at = body.find(b"<", at)


def label_of_xml(body: bytes) -> str | None:
    """Return the label in the XML declaration at the start of a page."""
    declared = _XML.match(body)
    return (
        (declared[1] or declared[2]).decode("latin-1") if declared and (declared[1] or declared[2]) else None
    )


def _label_of(attributes: bytes) -> bytes | None:
    values: dict[bytes, bytes] = {}
    for match in _ATTRIBUTES.finditer(attributes) if len(attributes) <= _LONGEST else ():
        values.setdefault(match[1].lower(), match[2] or match[3] or match[4] or b"")
    if label := values.get(b"charset"):
        return label
    if values.get(b"http-equiv", b"").lower() != b"content-type":
        return None
    declared = _OF_CONTENT.search(values.get(b"content", b""))
    return declared and (declared[1] or declared[2] or declared[3])

"""XML pages as HTML: empty elements, CDATA sections and instructions, which HTML writes otherwise.

A page need not be well-formed: what is no XML stays as it is. Takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_FLAGS: Final = re.IGNORECASE | re.DOTALL
_DATA: Final = re.compile(r"<!--.*?(?:-->|\Z)|<!\[CDATA\[(.*?)\]\]>", _FLAGS)
_INSTRUCTION: Final = re.compile(r"<\?.*?\?>", _FLAGS)
_DOCTYPE: Final = re.compile(r"(\s*+(?:<!--.*?-->\s*+)*+<!doctype[^\[>]*+)\[[^\]]*+\]", _FLAGS)
_QUOTED: Final = r""""[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z)"""
_PIECE: Final = re.compile(
    r"<!--.*?(?:-->|\Z)"
    r"|<(?:script|style)(?=[\s>])[^>]*+(?<!/)>.*?(?:</(?:script|style)|\Z)"
    rf"|<([a-z][^\s/>]*+)((?:[^\"'>]++|{_QUOTED})*+)(>|\Z)",
    _FLAGS,
)
"""A comment, an element of raw text, or a start tag. What does not end has the rest of the page."""
_VOID: Final = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source"]
)
"""Elements of HTML that have no end tag."""


def as_html(xml: str) -> str:
    """Return the page as HTML."""
    xml = _replace(_DATA, "]]>", _escaped, xml)
    xml = _replace(_INSTRUCTION, "?>", lambda _: "", xml)
    if has_subset := _DOCTYPE.match(xml):
        xml = has_subset[1] + xml[has_subset.end() :]
    return _PIECE.sub(_closed, xml) if "/>" in xml else xml


def _replace(pattern: re.Pattern[str], end: str, by: Callable[[re.Match[str]], str], text: str) -> str:
    """Replace what ends so. What does not end is not searched for an end again and again."""
    last = text.rfind(end) + len(end)
    return pattern.sub(by, text[:last]) + text[last:]


def _escaped(section: re.Match[str]) -> str:
    """Return the content of a section as text; a comment as it is."""
    return section[0] if section[1] is None else section[1].replace("&", "&amp;").replace("<", "&lt;")


def _closed(piece: re.Match[str]) -> str:
    """Return a start tag, with its end tag if it is an empty element's."""
    name, attributes = piece[1], piece[2]
    if name and piece[3] and attributes.endswith("/") and name.lower() not in _VOID:
        return f"{piece[0]}</{name}>"
    return piece[0]

"""The canonical URL that an HTML page names in its head: `<link rel="canonical" href="...">`.

A page may name any URL. Whether it is followed is decided by `stream.text.url.page_key`.
"""

from __future__ import annotations

import re
from html import unescape
from html.entities import html5
from typing import Final
from urllib.parse import urljoin

from stream.text.url import MAX_URL

HEAD_CHARACTERS: Final = 262_144
"""Most characters of a page that are searched."""
_LONGEST: Final = 2 * MAX_URL
"""Longest attributes of a tag that are read, in characters."""
_BLANK: Final = r"[ \t\n\f\r]"
# Every pattern below ends at the end of the text at the latest, and gives nothing back (`*+`): the time is
# linear, whatever the page. 256 KiB of the worst markup tried take 60 ms.
_VALUE: Final = r""""([^"]*+)(?:"|\Z)|'([^']*+)(?:'|\Z)|([^ \t\n\f\r>]*+)"""
_ATTRIBUTE: Final = (
    rf"(?:{_BLANK}|/)*+([^ \t\n\f\r/>][^ \t\n\f\r/>=]*+)(?:{_BLANK}*+={_BLANK}*+(?:{_VALUE}))?+"
)
_UNNAMED: Final = re.sub(r"\((?!\?)", "(?:", _ATTRIBUTE)
_FLAGS: Final = re.IGNORECASE | re.DOTALL | re.ASCII
_ATTRIBUTES: Final = re.compile(_ATTRIBUTE, _FLAGS)
_PIECE: Final = re.compile(
    rf"(?:{_BLANK}|\ufeff)*+(?:<!--(?:-?>|.*?(?:--!?>|\Z))|</?+[^a-z/][^>]*+(?:>|\Z)"
    rf"|<(/?+[a-z][^ \t\n\f\r/>]*+)((?:{_UNNAMED})*+)(?:{_BLANK}|/)*+(?:>|\Z))",
    _FLAGS,
)
"""A comment, a declaration, or a tag with its name and attributes, after white space."""
_TEXT_ENDS: Final = {
    name: re.compile(rf"</{name}(?=[ \t\n\f\r/>])", _FLAGS)
    for name in ("title", "style", "script", "noscript", "noframes")
}
"""Where the content of elements ends that have text only."""
_HEADER_LINK: Final = re.compile(r'<([^<>]*+)>((?:"[^"]*+(?:"|\Z)|[^",<])*+)')
_PARAMETER: Final = re.compile(r'(?<![^\s=;"])([^\s=;"]++)\s*+=\s*+(?:"([^"]*+)"|([^\s";]++))')
"""A parameter, from the start of its name: each letter of a long name would read the rest of it."""
_REFERENCE: Final = re.compile(
    r"&(?:#(?:\d{1,7}(?!\d)|x[\da-f]{1,6}(?![\da-f]));?|([a-z][a-z\d]{1,31}(?:;|(?![=a-z\d]))))", _FLAGS
)
"""A character reference of an attribute: `?a=1&region=eu` has none (WHATWG HTML, 13.2.5.73)."""
_OF_HEAD: Final = frozenset({"html", "head", "base", "basefont", "bgsound", "link", "meta", *_TEXT_ENDS})
_END_OF_HEAD: Final = frozenset({"/head", "/body", "/html", "/br"})


def canonical_link(html: str, url: str) -> str | None:
    """The URL in the first `<link rel="canonical">` of a page's head, made absolute, or None.

    The head ends as parsers end it: with text, or with any element that belongs elsewhere. So what visitors
    write into the body of a page is never read. Takes linear time.
    """
    base, at, end = url, 0, min(len(html), HEAD_CHARACTERS)
    while piece := _PIECE.match(html, at, end):
        at, name = piece.end(), (piece[1] or "").lower()
        if name in _END_OF_HEAD or (name and name[0] != "/" and name not in _OF_HEAD):
            return None
        if name in _TEXT_ENDS:
            closed = _TEXT_ENDS[name].search(html, at, end)
            if not closed:
                return None
            at = closed.start()
        elif name in ("base", "link"):
            named = _attributes(piece[2])
            href = named.get("href", "").strip()
            if name == "base" and href and base == url:
                base = _joined(url, href) or url
            elif name == "link" and href and "canonical" in named.get("rel", "").lower().split():
                return _joined(base, href)
    return None


def canonical_of_header(value: str, url: str) -> str | None:
    """The URL of the first `<URL>; rel="canonical"` in an HTTP header `Link` (RFC 8288) of the page at `url`,
    made absolute, or None."""
    for target, parameters in _HEADER_LINK.findall(value[:_LONGEST]):
        named = {name.lower(): quoted or bare for name, quoted, bare in _PARAMETER.findall(parameters)}
        if "canonical" in named.get("rel", "").lower().split():
            return _joined(url, target.strip())
    return None


def _attributes(text: str) -> dict[str, str]:
    """Attributes by name; of several of one name the first counts."""
    values: dict[str, str] = {}
    for match in _ATTRIBUTES.finditer(text) if len(text) <= _LONGEST else ():
        values.setdefault(match[1].lower(), _REFERENCE.sub(_referred, match[2] or match[3] or match[4] or ""))
    return values


def _referred(reference: re.Match[str]) -> str:
    name: str | None = reference[1]
    return unescape(reference[0]) if name is None or name in html5 else reference[0]


def _joined(base: str, href: str) -> str | None:
    try:
        return urljoin(base, href)
    except ValueError:
        return None

"""The text of a page, from whichever of `text`, `html` and `body` it has."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from stream.errors import PageError
from stream.pages.content_type import content_type, is_binary
from stream.pages.page import Page
from stream.text.canonical import canonical_link
from stream.text.decode import Kind, decode
from stream.text.extract import Extract, extraction
from stream.text.xml import as_html

SNIFF_CHARACTERS: Final = 2048
"""Characters of a body without a content type that are searched for HTML tags."""

_TEXTUAL = re.compile(r"(text/.+|application/(xhtml|xml|json|javascript|(?!pdf).+\+(xml|json))\b.*)")
_XML = re.compile(r"(text/xml|application/(xml|.+\+xml))")
_XML_START = re.compile(rb"\s*+<\?xml\b")
_HTML = re.compile(
    r"(?:\A\s*+<!--|<(!doctype\s+html|html|head|body|title|meta|link|script|style|div|p|h[1-6]|table|article|main"
    r"|section|br|a|iframe|font|b)[\s/>])",
    re.IGNORECASE,
)

_LANGUAGE = re.compile(
    r"""<html\b[^>]{0,300}?\s(?:xml:)?lang\s*=\s*["']?([a-z]{2,3})(?![a-z0-9])""", re.IGNORECASE | re.ASCII
)


class Content(NamedTuple):
    """What a page consists of, decoded."""

    text: str
    is_html: bool

    def main_text(self) -> str:
        """Return the text to fingerprint: plain text as it is, the main content of HTML. Raises PageError
        `extraction_failed`."""
        return self.extract().text

    def extract(self) -> Extract:
        """Return the text to fingerprint, with its share of the visible text. Raises PageError
        `extraction_failed`."""
        return extraction(self.text) if self.is_html else Extract(self.text, 1.0)

    def canonical_url(self, page: Page) -> str | None:
        """Return the canonical URL that this content of `page` names, or None."""
        if page.canonical_url is not None or not self.is_html:
            return page.canonical_url
        return canonical_link(self.text, page.url)


def page_content(page: Page) -> Content:
    """Return the `text`, the `html` or the decoded `body` of a page. A body is HTML, too, if its content type
    says so or, without one, if it contains HTML tags. XML becomes HTML.

    Raises PageError `unsupported_content`, `unknown_charset` or `missing_field`.
    """
    if page.text is not None:
        return Content(page.text, is_html=False)
    declared, charset = content_type(page.content_type)
    if declared is not None and not _TEXTUAL.fullmatch(declared):
        raise PageError("unsupported_content", declared[:100])
    kind = _kind(declared)
    if page.html is not None:
        return _content(page.html, "xml" if kind == "xml" else "html")
    if page.body is None:
        raise PageError("missing_field", "html, text or body")
    if declared in (None, "text/plain") and _is_utf_8(page.charset or charset) and is_binary(page.body):
        raise PageError("unsupported_content", f"{declared or 'no content type'}, and binary content")
    if kind is None and _XML_START.match(page.body):
        kind = "xml"
    text = decode(page.body, page.charset, charset, kind or "html")
    return _content(text, kind or ("html" if _HTML.search(text, 0, SNIFF_CHARACTERS) else "text"))


def _kind(declared: str | None) -> Kind | None:
    if declared is None:
        return None
    if _XML.fullmatch(declared):
        return "xml"
    return "html" if declared == "text/html" else "text"


def _content(text: str, kind: Kind) -> Content:
    return Content(as_html(text) if kind == "xml" else text, is_html=kind != "text")


def _is_utf_8(label: str | None) -> bool:
    """Whether a charset is what servers give to all that they do not know (MIME Sniffing, 5.2), or none."""
    return label is None or label.strip().lower() in ("", "utf-8", "iso-8859-1")


def page_text(page: Page) -> str:
    """Return the text to fingerprint. Raises PageError like `page_content` and `Content.main_text`."""
    return page_content(page).main_text()


def declared_language(page: Page) -> str:
    """Return the language that the `<html>` tag of a page declares, without script and region, or an
    empty string if it declares none. Only the beginning of a page is searched, of a body as ASCII."""
    if page.text is not None:
        return ""
    beginning = page.html[:SNIFF_CHARACTERS] if page.html is not None else ""
    if page.body is not None:
        beginning = page.body[:SNIFF_CHARACTERS].decode("ascii", "replace")
    tag = _LANGUAGE.search(beginning)
    return tag[1].lower() if tag else ""

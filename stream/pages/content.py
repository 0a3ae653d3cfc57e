"""The text of a page, from whichever of `text`, `html` and `body` it has."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from stream.errors import PageError
from stream.pages.page import Page
from stream.text.canonical import canonical_link
from stream.text.decode import MAX_CONTENT_TYPE, decode
from stream.text.extract import extract

SNIFF_CHARACTERS: Final = 2048
"""Characters of a body without a content type that are searched for HTML tags."""

_TEXTUAL = re.compile(r"(text/.+|application/(xhtml|xml|json|javascript|(?!pdf).+\+(xml|json))\b.*)")
_MARKUP = re.compile(r"(text/(html|xml)|application/(xml|.+\+xml))")
_HTML = re.compile(
    r"<(!doctype\s+html|html|head|body|title|meta|link|script|style|div|p|h[1-6]|table|article|main|section|br|a)"
    r"[\s/>]",
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
        return extract(self.text) if self.is_html else self.text

    def canonical_url(self, page: Page) -> str | None:
        """Return the canonical URL that this content of `page` names, or None."""
        if page.canonical_url is not None or not self.is_html:
            return page.canonical_url
        return canonical_link(self.text, page.url)


def page_content(page: Page) -> Content:
    """Return the `text`, the `html` or the decoded `body` of a page. A body is HTML, too, if its content type
    says so or, without one, if it contains HTML tags.

    Raises PageError `unsupported_content`, `unknown_charset` or `missing_field`.
    """
    if page.text is not None:
        return Content(page.text, is_html=False)
    kind = _media_type(page.content_type)
    if kind is not None and not _TEXTUAL.fullmatch(kind):
        raise PageError("unsupported_content", kind[:100])
    if page.html is not None:
        return Content(page.html, is_html=True)
    if page.body is None:
        raise PageError("missing_field", "html, text or body")
    text = decode(page.body, page.charset, page.content_type)
    is_html = _MARKUP.fullmatch(kind) if kind is not None else _HTML.search(text, 0, SNIFF_CHARACTERS)
    return Content(text, is_html=bool(is_html))


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


def _media_type(content_type: str | None) -> str | None:
    kind = (content_type or "")[:MAX_CONTENT_TYPE].partition(";")[0].strip().lower()
    return kind or None

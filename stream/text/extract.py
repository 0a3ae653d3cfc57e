"""HTML -> the text a reader came for, by resiliparse."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from resiliparse.extract.html2text import extract_plain_text

from stream.errors import PageError

MAX_DEPTH: Final = 1000
"""Deepest nesting that main-content extraction is trusted with. Its time grows with the square of the depth
(20 ms at 1000, 2.4 s at 10 000, 5 min at 100 000), that of whole-text extraction does not. Browsers stop at
512."""

_SURROGATES = re.compile("[\ud800-\udfff]")
# Neither void elements nor those that the parser closes by itself can nest without another between them.
_SHALLOW: Final = frozenset(
    re.findall(
        r"\w+",
        "area base br col embed hr img input link meta param source track wbr "
        "p li dt dd tr td th thead tbody tfoot option a button html head body",
    )
)
_START = re.compile(r"<([a-zA-Z][^\s/>]*)")
_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]*)")


def extract(html: str) -> str:
    """The main content of a page as plain text; the text of the whole body where no main content is found, or
    where the page is nested deeper than MAX_DEPTH.

    Link targets, alternative texts, form fields, list bullets and comment sections are left out: they differ
    between copies of one article. NUL and lone surrogates are as browsers read them, U+FFFD. Raises PageError
    `extraction_failed`.
    """
    html = html.replace("\0", "�")
    try:
        return _extracted(html)
    except (TypeError, UnicodeError):  # how resiliparse says that a str does not encode as UTF-8
        return _extracted(_SURROGATES.sub("�", html))


def _extracted(html: str) -> str:
    try:
        if not too_deep(html):
            text = _plain(html, main_content=True)
            if text.strip():
                return text
        return _plain(html, main_content=False)
    except (TypeError, UnicodeError):
        if _SURROGATES.search(html):
            raise
        raise PageError("extraction_failed", "not a text") from None
    except (RuntimeError, ValueError, MemoryError) as error:
        raise PageError("extraction_failed", f"{type(error).__name__}: {error}"[:200]) from error


def _plain(html: str, *, main_content: bool) -> str:
    text: str = extract_plain_text(
        html,
        preserve_formatting=False,
        main_content=main_content,
        list_bullets=False,
        alt_texts=False,
        links=False,
        form_fields=False,
        noscript=False,
        comments=False,
    )
    return text


def too_deep(html: str) -> bool:
    """Whether elements may nest deeper than MAX_DEPTH; scripts and comments count too, so this may err
    towards True. Follows the tags one by one only in pages with more than MAX_DEPTH that could nest (2 % of
    pages)."""
    if html.count("<") - html.count("</") <= MAX_DEPTH:
        return False
    starts = Counter(_START.findall(html))
    if sum(count for name, count in starts.items() if name.lower() not in _SHALLOW) <= MAX_DEPTH:
        return False
    open_elements: dict[str, int] = {}
    depth = 0
    for closing, written in _TAG.findall(html):
        name = written.lower()
        if name in _SHALLOW:
            continue
        count = open_elements.get(name, 0)
        if not closing:
            open_elements[name] = count + 1
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif count:  # an end tag without its start tag closes nothing
            open_elements[name] = count - 1
            depth -= 1
    return False

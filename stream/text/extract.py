"""HTML -> the text a reader came for, by resiliparse."""

from __future__ import annotations

import re
from typing import Final

from resiliparse.extract.html2text import extract_plain_text

from stream.errors import PageError

MAX_DEPTH: Final = 1000
"""Deepest nesting that main-content extraction is trusted with. Its time grows with the square of the depth
(20 ms at 1000, 2.4 s at 10 000, 5 min at 100 000), that of whole-text extraction does not. Browsers stop at
512."""

_SURROGATES = re.compile("[\ud800-\udfff]")
# Neither void elements nor those that the parser closes by itself can nest without another between them.
_SHALLOW: Final = (
    "area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr|"
    "p|li|dt|dd|tr|td|th|thead|tbody|tfoot|option|a|button|html|head|body"
)
_OPENING = re.compile(rf"<(?!(?:{_SHALLOW})[\s/>])[a-zA-Z]", re.IGNORECASE)
_TAG = re.compile(rf"<(/?)(?!(?:{_SHALLOW})[\s/>])([a-zA-Z][^\s/>]*)", re.IGNORECASE)


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
    towards True. Looks at single tags only in pages that have more than MAX_DEPTH of them."""
    if html.count("<") <= MAX_DEPTH or len(_OPENING.findall(html)) <= MAX_DEPTH:
        return False
    open_elements: dict[str, int] = {}
    depth = 0
    for closing, name in _TAG.findall(html):
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

"""Main-content extraction from HTML, by resiliparse."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree

from stream.errors import PageError
from stream.text.surrogates import replace_surrogates

SMALL: Final = 4096
SMALL_TAGS: Final = 500
"""Pages of at most SMALL bytes and SMALL_TAGS tags are cheap to parse, whatever they contain."""
SPARSE: Final = 0.03
"""Main content shorter than this fraction of the HTML (in characters) is compared with the body text. One
page in three is."""
LEAST_SHARE: Final = 0.2
"""Main content shorter than this fraction of the body text without navigation counts as a failed extraction:
the page is a list, a forum, or has a structure that the extractor misreads."""
_CHROME: Final = [
    *("nav", "footer", "aside", "[role=navigation]", "[role=contentinfo]", "[role=complementary]"),
    *(f"{mark}{name}" for mark in ".#" for name in ("nav", "menu", "sidebar", "footer")),
]


def extract(html: str) -> str:
    """The main content of a page as plain text.

    Falls back step by step. If the main content is tiny beside the rest of the page, the result is the main
    content with comment sections or, failing that, the body without navigation. If even that is empty, it is
    the whole body. If the markup is too expensive to parse (`stream.text.markup`), the tags are stripped
    without a parser.

    Link targets, alternative texts, form fields, list bullets and comment sections are left out, because they
    differ between copies of one article. NUL and lone surrogates become U+FFFD, as in browsers. Raises
    PageError `extraction_failed`.
    """
    try:
        encoded = html.encode()
    except UnicodeEncodeError:
        html = replace_surrogates(html)
        encoded = html.encode()
    if b"\0" in encoded:  # far faster to find in bytes than in a str of wide characters
        html = html.replace("\0", "�")
    if too_costly(encoded):
        from stream.text.markup import stripped

        return stripped(encoded)
    del encoded  # the parse tree of a large page needs the memory
    try:
        tree = HTMLTree.parse(html)  # shared by all attempts: parsing is half the time of an extraction
        text = _main(tree, SPARSE * len(html))
        if text.strip():
            return text
        return _plain(tree, main_content=False)
    except (RuntimeError, ValueError, TypeError, MemoryError) as error:
        raise PageError("extraction_failed", f"{type(error).__name__}: {error}"[:200]) from error


def _main(tree: HTMLTree, sparse: float) -> str:
    text = _plain(tree, main_content=True)
    if len(text) >= sparse:
        return text
    body = _plain(tree, main_content=False, skip=_CHROME)
    least = LEAST_SHARE * len(body)
    if len(text) >= least:
        return text
    discussed = _plain(tree, main_content=True, comments=True)
    return discussed if len(discussed) >= least else body


def _plain(tree: HTMLTree, *, main_content: bool, comments: bool = False, skip: Sequence[str] = ()) -> str:
    text: str = extract_plain_text(
        tree,
        preserve_formatting=False,
        main_content=main_content,
        list_bullets=False,
        alt_texts=False,
        links=False,
        form_fields=False,
        noscript=False,
        comments=comments,
        skip_elements=skip,
    )
    return text


def too_costly(page: bytes) -> bool:
    """Whether a UTF-8 page is disproportionately expensive to parse for its size."""
    # Spares commands that read one small page the import of the compiler.
    if "numba" not in sys.modules and len(page) <= SMALL and page.count(b"<") <= SMALL_TAGS:
        return False
    from stream.text import markup

    return markup.too_costly(page)

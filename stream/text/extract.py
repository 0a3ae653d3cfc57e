"""HTML -> the text a reader came for, by resiliparse."""

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
"""Pages of so many bytes and tags cost no parser much, whatever is in them."""
SPARSE: Final = 0.03
"""Main content of fewer characters than this share of the HTML is compared with the body: a page in three."""
LEAST_SHARE: Final = 0.2
"""Main content that is less than this share of the body without chrome was not found: the page is a list, a
forum, or built in a way that the extractor mistakes."""
_CHROME: Final = [
    *("nav", "footer", "aside", "[role=navigation]", "[role=contentinfo]", "[role=complementary]"),
    *(f"{mark}{name}" for mark in ".#" for name in ("nav", "menu", "sidebar", "footer")),
]


def extract(html: str) -> str:
    """The main content of a page as plain text. Where that is almost nothing beside the rest of the page: the
    main content with comment sections, or the body without menus and bars. The whole body where nothing is
    left; the whole text, by no parser, where the markup would cost one too much (`stream.text.markup`).

    Link targets, alternative texts, form fields, list bullets and comment sections are left out: they differ
    between copies of one article. NUL and lone surrogates are as browsers read them, U+FFFD. Raises PageError
    `extraction_failed`.
    """
    try:
        encoded = html.encode()
    except UnicodeEncodeError:
        html = replace_surrogates(html)
        encoded = html.encode()
    if b"\0" in encoded:  # much faster to see here than in a str of wide characters
        html = html.replace("\0", "�")
    if too_costly(encoded):
        from stream.text.markup import stripped

        return stripped(encoded)
    del encoded  # the tree of a large page needs the memory
    try:
        tree = HTMLTree.parse(html)  # once, whatever is asked of it: half the time of an extraction
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
    """Whether a parser would need more for a page of UTF-8 than for others of its size."""
    # A command that reads a small page need not wait for the compiler's import.
    if "numba" not in sys.modules and len(page) <= SMALL and page.count(b"<") <= SMALL_TAGS:
        return False
    from stream.text import markup

    return markup.too_costly(page)

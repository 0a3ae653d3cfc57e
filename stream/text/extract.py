"""HTML -> the text a reader came for, by resiliparse."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree

from stream.errors import PageError
from stream.text.surrogates import replace_surrogates

MAX_DEPTH: Final = 1000
"""Deepest nesting that main-content extraction is trusted with. Its time grows with the square of the depth
(20 ms at 1000, 2.4 s at 10 000, 5 min at 100 000), that of whole-text extraction does not. Browsers stop at
512."""

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
    left, or where the page is nested deeper than MAX_DEPTH.

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
    deep = _too_deep(encoded)
    del encoded  # the tree of a large page needs the memory
    try:
        tree = HTMLTree.parse(html)  # once, whatever is asked of it: half the time of an extraction
        if not deep:
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


def too_deep(html: str) -> bool:
    """Whether elements may nest deeper than MAX_DEPTH; scripts and comments count too, so this may err
    towards True."""
    return _too_deep(html.encode("utf-8", "replace"))


def _too_deep(encoded: bytes) -> bool:
    # A command that reads a page or two need not wait for the compiler's import: three pages in four have
    # fewer start tags. Where it is there, it counts them faster.
    if "numba" not in sys.modules and encoded.count(b"<") - encoded.count(b"</") <= MAX_DEPTH:
        return False
    from stream.text.nesting import deeper_than

    return deeper_than(encoded, MAX_DEPTH)

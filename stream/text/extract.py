"""HTML -> the text a reader came for, by resiliparse."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
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
    deep = _too_deep(html, encoded)
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
    towards True. Follows the tags one by one only in pages with more than MAX_DEPTH that could nest (2 % of
    pages)."""
    return _too_deep(html, html.encode("utf-8", "replace"))


def _too_deep(html: str, encoded: bytes) -> bool:
    if _could_nest(encoded) <= MAX_DEPTH:
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


def _could_nest(encoded: bytes) -> int:
    """How many start tags could nest, or more: of those that cannot, only names of one or two letters are
    left out, which are most. Half the cost of looking at the names in Python."""
    opening = np.frombuffer(encoded, np.uint8) == ord("<")
    count = int(np.count_nonzero(opening))
    if count <= MAX_DEPTH:
        return count
    at = np.flatnonzero(opening)
    page = np.frombuffer(encoded + b"   ", np.uint8)
    letters = (_LETTER.take(page.take(at + place)) for place in (1, 2, 3))
    names = np.zeros(at.size, np.int32)
    for letter in letters:
        names <<= 5
        names |= letter
    return int(np.count_nonzero(_NESTING.take(names)))


def _letters() -> NDArray[np.uint8]:
    """Byte -> 1 to 26 for a letter, 0 for what ends a name, 31 for all else (256,)."""
    table = np.full(256, 31, np.uint8)
    table[list(b" \t\n\f\r/>")] = 0
    for first in (ord("a"), ord("A")):
        table[first : first + 26] = np.arange(1, 27)
    return table


def _nesting() -> NDArray[np.bool_]:
    """First three letters of a tag, 5 bits each -> whether it is a start tag that could nest (32768,)."""
    table = np.zeros(1 << 15, np.bool_)
    table[1 << 10 : 27 << 10] = True
    for name in _SHALLOW:
        first, *others = (ord(letter) - ord("a") + 1 for letter in name)
        if not others:
            table[first << 10 : (first << 10) + 32] = False
        elif len(others) == 1:
            table[first << 10 | others[0] << 5] = False
    return table


_LETTER: Final = _letters()
_NESTING: Final = _nesting()

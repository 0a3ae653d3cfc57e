"""Main-content extraction from HTML, by resiliparse, checked against the prose of the body."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from html import unescape
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
UNDOUBTED: Final = 0.08
"""Main content of at least this fraction of the HTML (in characters) is taken without a second look."""
LEAST_PROSE: Final = 0.5
"""Main content shorter than this fraction of the body's prose is replaced by the prose. Chosen with the pages
of docs/quality.md in view."""
PROSE: Final = 80
"""Characters outside links that make a block prose."""
PROSE_LINKS: Final = 0.4
"""Largest share of a prose block's characters that may be in links."""
PROSE_GAP: Final = 4
"""Most other blocks between two prose blocks that belong to the text: headings, captions."""
LINK_LIST: Final = 0.5
"""A block is part of a menu if more than this share of it is in links, and of it with its two neighbours."""
CODE: Final = 4
CODE_CHARACTERS: Final = 10_000
"""Reference documentation has at least CODE code elements and one definition or code element more for every
CODE_CHARACTERS / CODE characters of HTML. Its signatures and tables are content, but no prose."""
_CODE_ELEMENT: Final = re.compile(r"<(?:code|pre|tt|dt|kbd)\b", re.IGNORECASE)
_TAG: Final = re.compile(r"(<[^<>]*>)")
_NAVIGATION: Final = [
    *("nav", "footer", "[role=navigation]", "[role=contentinfo]"),
    *(f"{mark}{name}" for mark in ".#" for name in ("nav", "menu", "footer")),
]
_CHROME: Final = [
    *(*_NAVIGATION, "aside", "[role=complementary]", ".sidebar", "#sidebar"),
    *(f"[{attribute}*={word}]" for attribute in ("class", "id") for word in ("cookie", "consent")),
]


def extract(html: str) -> str:
    """The main content of a page as plain text.

    Reference documentation gives its body without navigation. Of other pages, the main content is compared
    with the body's prose, told by length and link density, and replaced by it if it has too little. If the
    main content is tiny beside the rest of the page, the result is the main content with comment sections or,
    failing that, the body without navigation. If even that is empty, it is the whole body. If the markup is
    too expensive to parse (`stream.text.markup`), the tags are stripped without a parser.

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
        text = _main(tree, html)
        if text.strip():
            return text
        return _plain(tree, main_content=False)
    except (RuntimeError, ValueError, TypeError, MemoryError) as error:
        raise PageError("extraction_failed", f"{type(error).__name__}: {error}"[:200]) from error


def _main(tree: HTMLTree, html: str) -> str:
    if _is_reference(html):
        return _plain(tree, main_content=False, skip=_NAVIGATION)
    text = _plain(tree, main_content=True)
    if len(text) >= UNDOUBTED * len(html):
        return text
    prose = _prose(tree)
    if len(text) < LEAST_PROSE * len(prose):
        return prose
    if len(text) >= SPARSE * len(html):
        return text
    body = _plain(tree, main_content=False, skip=_CHROME)
    least = LEAST_SHARE * len(body)
    if len(text) >= least:
        return text
    discussed = _plain(tree, main_content=True, comments=True)
    return discussed if len(discussed) >= least else body


def _is_reference(html: str) -> bool:
    found = sum(1 for _ in _CODE_ELEMENT.finditer(html))
    return found >= CODE * (1 + len(html) / CODE_CHARACTERS)


def _prose(tree: HTMLTree) -> str:
    """The prose blocks of the body without menus and bars, and what stands between close ones; without
    any, all blocks but menus."""
    blocks = list(_blocks(tree))
    menu = [
        linked > LINK_LIST * length
        and sum(each[2] for each in blocks[max(0, i - 1) : i + 2])
        > LINK_LIST * sum(each[1] for each in blocks[max(0, i - 1) : i + 2])
        for i, (_, length, linked) in enumerate(blocks)
    ]
    blocks = [block for block, listed in zip(blocks, menu, strict=True) if not listed]
    kept: list[str] = []
    last = len(blocks)
    for i, (text, length, linked) in enumerate(blocks):
        if length - linked < PROSE or linked >= PROSE_LINKS * length:
            continue
        if last < i <= last + PROSE_GAP + 1:
            kept += (each[0] for each in blocks[last + 1 : i])
        kept.append(text)
        last = i
    return "\n".join(kept or (each[0] for each in blocks))


def _blocks(tree: HTMLTree) -> Iterator[tuple[str, int, int]]:
    """Each block of the body without menus and bars: its text, its length, and the part of it in links. Takes
    linear time."""
    markup = _plain(tree, main_content=False, skip=_CHROME, as_html=True)
    in_link = False
    for line in markup.split("\n"):
        texts: list[str] = []
        linked = 0
        for i, piece in enumerate(_TAG.split(line)):
            if i % 2 == 0:
                texts.append(piece)
                linked += len(piece) if in_link else 0
            elif piece.startswith(("<a ", "<a>")):
                in_link = True
            elif piece == "</a>":
                in_link = False
        text = "".join(texts).strip()
        if text:
            yield unescape(text), len(text), min(linked, len(text))


def _plain(
    tree: HTMLTree,
    *,
    main_content: bool,
    comments: bool = False,
    skip: Sequence[str] = (),
    as_html: bool = False,
) -> str:
    """What `extract` takes from a page; `as_html` keeps the tags of blocks and links."""
    text: str = extract_plain_text(
        tree,
        preserve_formatting="minimal_html" if as_html else False,
        main_content=main_content,
        list_bullets=False,
        alt_texts=False,
        links=as_html,
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

"""Reads the parts of HTML that are no text, in compiled code: names of tags, comments, raw text (WHATWG HTML,
13.2.5)."""

from __future__ import annotations

import html
import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled


def word(letters: str) -> int:
    """Up to 8 letters packed into an integer, big-endian."""
    return int.from_bytes(letters.encode(), "big")


def unescaped(text: str) -> str:
    """A text with its character references replaced. Takes linear time."""
    return _REFERENCE.sub(lambda match: html.unescape(match[0]), text) if "&" in text else text


_REFERENCE: Final = re.compile(
    r"&(?:#\d{1,7}(?!\d)|#[xX][0-9a-fA-F]{1,6}(?![0-9a-fA-F])|[a-zA-Z][a-zA-Z0-9]{1,31});?"
)
LESS, GREATER, SLASH, BANG, EQUAL, DASH, QUOTE, APOSTROPHE, MARK = map(ord, "<>/!=-\"'?")
A, Z = ord("a"), ord("z")
LETTERS: Final = 15
"""Longer names are of no element."""
_SCRIPT: Final = word("script")


def _in_name() -> NDArray[np.uint8]:
    """Byte of a tag name -> its lower case, or 0 for a byte that ends the name (256,)."""
    table = np.arange(256, dtype=np.uint8)
    table[ord("A") : ord("Z") + 1] += ord("a") - ord("A")
    table[list(b" \t\n\f\r/>")] = 0
    return table


IN_NAME: Final = _in_name()
IS_BLANK: Final = np.isin(np.arange(256), list(b" \t\n\f\r"))
_COMMENT, _COMMENT_END = (np.frombuffer(each, np.uint8) for each in (b"!--", b"-->"))


@compiled
def tag_name(page: NDArray[np.uint8], at: int) -> tuple[int, int, int]:
    """The end of the tag name that begins at `at`, and both halves of the name, 0 if it is too long."""
    first = second = 0
    start = at
    while at < len(page) and IN_NAME[page[at]]:
        letter = int(IN_NAME[page[at]])
        if at - start < 8:
            first = first << 8 | letter
        else:
            second = second << 8 | letter
        at += 1
    if at - start > LETTERS:
        return at, 0, 0
    return at, first, second


@compiled
def _after_comment(page: NDArray[np.uint8], at: int) -> int:
    """The end of the comment whose content begins at `at`."""
    if at < len(page) and page[at] == GREATER:
        return at + 1
    if at + 1 < len(page) and page[at] == DASH and page[at + 1] == GREATER:
        return at + 2
    while at + 2 < len(page):
        if page[at] == DASH and page[at + 1] == DASH:
            if page[at + 2] == GREATER:
                return at + 3
            if page[at + 2] == BANG and at + 3 < len(page) and page[at + 3] == GREATER:
                return at + 4
        at += 1
    return len(page)


@compiled
def after_bogus(page: NDArray[np.uint8], at: int) -> int:
    """The end of what is no tag: the next `>`."""
    while at < len(page) and page[at] != GREATER:
        at += 1
    return at + 1


@compiled
def after_declaration(page: NDArray[np.uint8], at: int) -> int:
    """The end of the comment or document type whose `<!` ends at `at`."""
    if at + 1 < len(page) and page[at] == DASH and page[at + 1] == DASH:
        return _after_comment(page, at + 2)
    return after_bogus(page, at)


@compiled
def _begins(page: NDArray[np.uint8], at: int, letters: NDArray[np.uint8]) -> bool:
    if at + len(letters) > len(page):
        return False
    same = True
    for place in range(len(letters)):
        same = same and page[at + place] == letters[place]
    return same


@compiled
def raw_end(page: NDArray[np.uint8], at: int, first: int, second: int) -> int:
    """The end of raw text that begins at `at`: the position of the end tag with that name."""
    escaped = twice = False
    is_script = first == _SCRIPT and second == 0
    while at < len(page):
        if is_script and page[at] == DASH and _begins(page, at, _COMMENT_END):
            escaped = twice = False
        if page[at] != LESS:
            at += 1
            continue
        if is_script and not escaped and _begins(page, at + 1, _COMMENT):
            escaped = True
            at += 2  # `<!-->` is a whole comment: its dashes may also end it
            continue
        closing = at + 1 < len(page) and page[at + 1] == SLASH
        if not closing and not escaped:
            at += 1
            continue
        name = at + 1 + closing
        end, one, other = tag_name(page[: name + LETTERS + 1], name)  # bounded: names may overlap
        if end < len(page) and one == first and other == second and not (closing and twice):
            if closing:
                return at
            twice = True
        elif closing and twice and end < len(page) and one == first and other == second:
            twice = False
        at += 1
    return len(page)

"""An upper bound on the cost of parsing a page's HTML, computed by a compiled loop over its bytes.

HTML parsing is linear with a few exceptions: the parser searches the open elements for the one that an end
tag closes, reopens formatting elements in every block, and compares each attribute with the preceding ones. A
hostile page of 100 KB can take a minute or a gigabyte that way. This module follows the tags as the parser
does (WHATWG HTML, 13.2.5 and 13.2.6) without building a tree. Where following it exactly would take too many
rules, it overestimates.
"""

from __future__ import annotations

import html
import re
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled
from stream.text.elements import (
    BLOCK,
    BREAKOUT,
    CLOSES_P,
    FOREIGN,
    FORMATTING,
    HEADING,
    IGNORED,
    IMPLIED,
    LETTERS,
    MARKER,
    MATH,
    MATH_POINT,
    NO_TEXT,
    POINT,
    RAW,
    ROOT,
    SCOPE,
    SPECIAL,
    SVG_POINT,
    TABLE_PART,
    VOID,
    ElementFlags,
    names,
    slot_of,
    word,
)

MAX_DEPTH: Final = 1000
"""Deepest nesting passed to main-content extraction, whose time grows with the square of the depth: 20 ms at
1000, 2.4 s at 10 000. Browsers stop at 512."""
MAX_LISTED: Final = 512
"""Most entries in the parser's list of active formatting elements."""
NODES: Final = 100_000
STEPS: Final = 8_000_000
"""Allowance of every page. A node takes up to 600 bytes and 4 microseconds; a step, which is one look at an
open element or attribute, takes up to 70 ns."""
NODES_SHARE: Final = 16
STEPS_SHARE: Final = 4
"""Additional allowance by size: one node per NODES_SHARE bytes, STEPS_SHARE steps per byte."""

_LESS, _GREATER, _SLASH, _BANG, _EQUAL, _DASH, _QUOTE, _APOSTROPHE, _OPENING, _CLOSING, _MARK = map(
    ord, "<>/!=-\"'[]?"
)
_A, _Z = ord("a"), ord("z")
_BLANK: Final = ord(" ")
_NONE: Final = 0
_FOREIGN_NAME: Final = 1 << 62
"""Flag in the second half of a name: an SVG or MathML element, not the HTML element of that name."""
# Names of elements, and of the attributes color, face, size and encoding. A name is packed into two integers
# of eight letters each; these are the first halves, such as _PLAINTEX of `plaintext`. _ON_XML and _RK are the
# second halves of `annotation-xml` and `malignmark`. _A_ is the element `a`, since _A is the letter; _MATH_
# is `math`, since MATH is a flag.
_A_, _BODY, _HTML, _FORM, _P, _LI, _DD, _DT, _TR, _TABLE, _BUTTON, _OPTION, _SELECT = (
    word(name)
    for name in [
        "a",
        "body",
        "html",
        "form",
        "p",
        "li",
        "dd",
        "dt",
        "tr",
        "table",
        "button",
        "option",
        "select",
    ]
)
_TD, _TH, _TBODY, _TFOOT, _THEAD, _TEMPLATE, _NOBR, _FONT, _MATH_, _OL, _UL, _ADDRESS, _DIV, _BR = (
    word(name)
    for name in [
        "td",
        "th",
        "tbody",
        "tfoot",
        "thead",
        "template",
        "nobr",
        "font",
        "math",
        "ol",
        "ul",
        "address",
        "div",
        "br",
    ]
)
(
    _SCRIPT,
    _PLAINTEX,
    _COLOR,
    _FACE,
    _SIZE,
    _ENCODING,
    _ANNOTATI,
    _SVG,
    _MGLYPH,
    _MALIGNMA,
    _INPUT,
    _HR,
    _OPTGROUP,
    _RB,
    _RT,
    _RP,
    _RTC,
    _RUBY,
    _COL,
) = (
    word(name)
    for name in [
        "script",
        "plaintex",
        "color",
        "face",
        "size",
        "encoding",
        "annotati",
        "svg",
        "mglyph",
        "malignma",
        "input",
        "hr",
        "optgroup",
        "rb",
        "rt",
        "rp",
        "rtc",
        "ruby",
        "col",
    ]
)
_ON_XML, _RK = word("on-xml"), word("rk")
_FIRST, _SECOND, _SORTS, _NAMED, _BARE, _AT, _COUNTS = range(7)
"""Rows of the parser state `opened`. Three rows describe the stack of open elements: both halves of the name,
and the flags. Three describe the list of active formatting elements: the first half of the name (0 for a
marker), whether the element has no attributes, and its index in the stack (-1 once closed). The last row
holds the counts."""
_HEIGHT, _LISTED, _LOST, _NODES, _STEPS, _IN_SELECT, _ROOT_ATTRIBUTES, _MOST = range(8)
"""Columns of the row of counts: open elements, entries of the list of active formatting elements, entries
whose element is closed, nodes, steps, nodes since `<select>`, attributes of `html` and `body`, and the
greatest number of open elements."""


class ParsingCost(NamedTuple):
    """The estimated cost of parsing a page."""

    depth: int
    """Most elements open at once, up to MAX_DEPTH + 1."""
    nodes: int
    """Elements and comments, plus half the number of attributes."""
    steps: int
    """Looks at open elements, formatting elements and attributes."""
    whole: bool
    """Whether the end of the page was reached within all limits."""


def cost(page: bytes) -> ParsingCost:
    """The cost of parsing a UTF-8 page and extracting its main content."""
    opened = np.zeros((_COUNTS + 1, MAX_DEPTH), np.int64)
    return ParsingCost(*_cost(np.frombuffer(page, np.uint8), _NAMES, opened))


def too_costly(page: bytes) -> bool:
    """Whether a UTF-8 page is disproportionately expensive to parse for its size."""
    return not cost(page).whole


def stripped(page: bytes) -> str:
    """The whole text of a UTF-8 page, navigation included, without tags, comments, scripts and the like.
    Takes linear time and uses no parser."""
    left = _stripped(np.frombuffer(page, np.uint8), _NAMES).tobytes().decode("utf-8", "replace")
    return _REFERENCE.sub(lambda found: html.unescape(found[0]), left)


_REFERENCE: Final = re.compile(
    r"&(?:#\d{1,7}(?!\d)|#[xX][0-9a-fA-F]{1,6}(?![0-9a-fA-F])|[a-zA-Z][a-zA-Z0-9]{1,31});?"
)


@compiled
def _sort_of(first: int, second: int, names: ElementFlags) -> int:
    slot = slot_of(first, second)
    while names.first[slot] != _NONE:
        if names.first[slot] == first and names.second[slot] == second:
            return int(names.sorts[slot])
        slot = slot + 1 & len(names.first) - 1
    return 0


@compiled
def _name(page: NDArray[np.uint8], at: int) -> tuple[int, int, int]:
    """The end of the tag name that begins at `at`, and both halves of the name, 0 if it is too long."""
    first = second = _NONE
    start = at
    while at < len(page) and _IN_NAME[page[at]]:
        letter = int(_IN_NAME[page[at]])
        if at - start < 8:
            first = first << 8 | letter
        else:
            second = second << 8 | letter
        at += 1
    if at - start > LETTERS:
        return at, _NONE, _NONE
    return at, first, second


@compiled
def _attributes(page: NDArray[np.uint8], at: int) -> tuple[int, int, bool, bool, int]:
    """Read the rest of a tag, after its name.

    Returns the end of the tag (beyond the page if it is not closed); the number of attributes; whether the
    tag is self-closing; whether an attribute makes a `font` element HTML; and the class of the attribute
    `encoding`: 1 for HTML, 2 if it contains a character reference and so is not known, 0 otherwise.
    """
    count, font, encoding, seen = 0, False, 0, False
    while True:
        closes = False
        while at < len(page) and (_IS_BLANK[page[at]] or page[at] == _SLASH):
            closes = page[at] == _SLASH
            at += 1
        if at >= len(page):
            return len(page) + 1, count, False, font, encoding
        if page[at] == _GREATER:
            return at + 1, count, closes, font, encoding
        count += 1
        start, name = at, _NONE
        at += 1
        while at < len(page) and _IN_NAME[page[at]] and page[at] != _EQUAL:
            at += 1
        if at - start <= 8:
            for place in range(start, at):
                name = name << 8 | int(_IN_NAME[page[place]])
        font = font or name in (_COLOR, _FACE, _SIZE)
        while at < len(page) and _IS_BLANK[page[at]]:
            at += 1
        if at >= len(page) or page[at] != _EQUAL:
            continue
        at += 1
        while at < len(page) and _IS_BLANK[page[at]]:
            at += 1
        if at >= len(page) or page[at] == _GREATER:
            continue
        start = at
        if page[at] == _QUOTE or page[at] == _APOSTROPHE:
            quote, start = page[at], at + 1
            at += 1
            while at < len(page) and page[at] != quote:
                at += 1
            end = at
            at += 1
        else:
            while at < len(page) and not _IS_BLANK[page[at]] and page[at] != _GREATER:
                at += 1
            end = at
        if name == _ENCODING and not seen:
            seen, encoding = True, _encoding(page[start:end])


@compiled
def _encoding(value: NDArray[np.uint8]) -> int:
    for place in range(len(value)):
        if value[place] == _AMPERSAND:
            return 2
    for html_type in (_HTML_TYPE, _XHTML_TYPE):
        same = len(value) == len(html_type)
        for place in range(len(html_type)):
            same = same and value[place] | 0x20 == html_type[place] | 0x20
        if same:
            return 1
    return 0


@compiled
def _after_comment(page: NDArray[np.uint8], at: int) -> int:
    """The end of the comment whose content begins at `at`."""
    if at < len(page) and page[at] == _GREATER:
        return at + 1
    if at + 1 < len(page) and page[at] == _DASH and page[at + 1] == _GREATER:
        return at + 2
    while at + 2 < len(page):
        if page[at] == _DASH and page[at + 1] == _DASH:
            if page[at + 2] == _GREATER:
                return at + 3
            if page[at + 2] == _BANG and at + 3 < len(page) and page[at + 3] == _GREATER:
                return at + 4
        at += 1
    return len(page)


@compiled
def _after_section(page: NDArray[np.uint8], at: int) -> int:
    """The end of the CDATA section whose content begins at `at`."""
    while at + 2 < len(page):
        if page[at] == _CLOSING and page[at + 1] == _CLOSING and page[at + 2] == _GREATER:
            return at + 3
        at += 1
    return len(page)


@compiled
def _after_bogus(page: NDArray[np.uint8], at: int) -> int:
    while at < len(page) and page[at] != _GREATER:
        at += 1
    return at + 1


@compiled
def _after_declaration(page: NDArray[np.uint8], at: int, foreign: bool) -> int:
    """The end of the comment, document type or CDATA section whose `<!` ends at `at`."""
    if at + 1 < len(page) and page[at] == _DASH and page[at + 1] == _DASH:
        return _after_comment(page, at + 2)
    if foreign and _begins(page, at, _SECTION):
        return _after_section(page, at + len(_SECTION))
    return _after_bogus(page, at)


@compiled
def _begins(page: NDArray[np.uint8], at: int, letters: NDArray[np.uint8]) -> bool:
    if at + len(letters) > len(page):
        return False
    same = True
    for place in range(len(letters)):
        same = same and page[at + place] == letters[place]
    return same


@compiled
def _raw_end(page: NDArray[np.uint8], at: int, first: int, second: int) -> int:
    """The end of raw text that begins at `at`: the position of the end tag with that name."""
    escaped = twice = False
    is_script = first == _SCRIPT and second == _NONE
    while at < len(page):
        if is_script and page[at] == _DASH and _begins(page, at, _COMMENT_END):
            escaped = twice = False
        if page[at] != _LESS:
            at += 1
            continue
        if is_script and not escaped and _begins(page, at + 1, _COMMENT):
            escaped = True
            at += 2  # `<!-->` is a whole comment: its dashes may also end it
            continue
        closing = at + 1 < len(page) and page[at + 1] == _SLASH
        if not closing and not escaped:
            at += 1
            continue
        end, one, other = _name(page, at + 1 + closing)
        if end < len(page) and one == first and other == second and not (closing and twice):
            if closing:
                return at
            twice = True
        elif closing and twice and end < len(page) and one == first and other == second:
            twice = False
        at += 1
    return len(page)


@compiled
def _stripped(page: NDArray[np.uint8], names: ElementFlags) -> NDArray[np.uint8]:
    left = np.full(len(page), _BLANK, np.uint8)
    at = 0
    while at < len(page):
        if page[at] != _LESS or at + 1 == len(page):
            left[at] = page[at]
            at += 1
            continue
        following = page[at + 1]
        if following == _BANG:
            at = _after_declaration(page, at + 2, False)
        elif following == _MARK:
            at = _after_bogus(page, at + 2)
        else:
            closing = following == _SLASH
            end, first, second = _name(page, at + 1 + closing)
            if end == at + 1 + closing or not _A <= _IN_NAME[page[at + 1 + closing]] <= _Z:
                if closing:
                    at = _after_bogus(page, at + 2)
                else:
                    left[at] = page[at]
                    at += 1
                continue
            at = _attributes(page, end)[0]
            if not closing and _sort_of(first, second, names) & RAW and first != _PLAINTEX:
                at = _raw_end(page, at, first, second)
    return left


@compiled
def _pop(opened: NDArray[np.int64], height: int) -> None:
    """Close open elements until `height` remain."""
    formatting = 0
    for place in range(height, opened[_COUNTS, _HEIGHT]):
        formatting |= opened[_SORTS, place] & FORMATTING
    opened[_COUNTS, _STEPS] += max(0, opened[_COUNTS, _HEIGHT] - height)
    if formatting:
        opened[_COUNTS, _STEPS] += opened[_COUNTS, _LISTED]
        for listed in range(opened[_COUNTS, _LISTED]):
            if opened[_NAMED, listed] != _NONE and opened[_AT, listed] >= height:
                opened[_AT, listed] = -1
                opened[_COUNTS, _LOST] += 1
    opened[_COUNTS, _HEIGHT] = height


@compiled
def _clear(opened: NDArray[np.int64]) -> None:
    """Remove the formatting elements since the last marker, and the marker, from the list."""
    while opened[_COUNTS, _LISTED]:
        opened[_COUNTS, _LISTED] -= 1
        last = opened[_COUNTS, _LISTED]
        if opened[_NAMED, last] == _NONE:
            break
        opened[_COUNTS, _LOST] -= opened[_AT, last] < 0


@compiled
def _push(opened: NDArray[np.int64], first: int, second: int, sorts: int) -> None:
    height = opened[_COUNTS, _HEIGHT]
    if height < MAX_DEPTH:
        opened[_FIRST, height], opened[_SECOND, height], opened[_SORTS, height] = first, second, sorts
        opened[_COUNTS, _HEIGHT] = height + 1
    opened[_COUNTS, _MOST] = max(opened[_COUNTS, _MOST], height + 1)


@compiled
def _remove(opened: NDArray[np.int64], place: int) -> None:
    """Take an element out of the middle of the stack."""
    opened[_COUNTS, _STEPS] += opened[_COUNTS, _HEIGHT] - place + opened[_COUNTS, _LISTED]
    for later in range(place + 1, opened[_COUNTS, _HEIGHT]):
        opened[_FIRST, later - 1] = opened[_FIRST, later]
        opened[_SECOND, later - 1] = opened[_SECOND, later]
        opened[_SORTS, later - 1] = opened[_SORTS, later]
    opened[_COUNTS, _HEIGHT] -= 1
    for listed in range(opened[_COUNTS, _LISTED]):
        if opened[_NAMED, listed] != _NONE and opened[_AT, listed] >= place:
            lost = opened[_AT, listed] == place
            opened[_AT, listed] = -1 if lost else opened[_AT, listed] - 1
            opened[_COUNTS, _LOST] += lost


@compiled
def _disown(opened: NDArray[np.int64], place: int) -> None:
    """Take an element's name away, so that only an enclosing element closes it."""
    if place == opened[_COUNTS, _HEIGHT] - 1:
        _pop(opened, place)
    else:
        opened[_FIRST, place] = opened[_SECOND, place] = opened[_SORTS, place] = 0


@compiled
def _forget(opened: NDArray[np.int64], which: int) -> None:
    """Remove entry `which` from the list of active formatting elements."""
    opened[_COUNTS, _LOST] -= opened[_AT, which] < 0
    for later in range(which + 1, opened[_COUNTS, _LISTED]):
        opened[_NAMED, later - 1] = opened[_NAMED, later]
        opened[_BARE, later - 1] = opened[_BARE, later]
        opened[_AT, later - 1] = opened[_AT, later]
    opened[_COUNTS, _LISTED] -= 1


@compiled
def _unlist(opened: NDArray[np.int64], place: int) -> None:
    """Remove the open element at `place` from the list of active formatting elements, if it is listed."""
    opened[_COUNTS, _STEPS] += opened[_COUNTS, _LISTED]
    for which in range(opened[_COUNTS, _LISTED]):
        if opened[_NAMED, which] != _NONE and opened[_AT, which] == place:
            _forget(opened, which)
            return


@compiled
def _open_again(opened: NDArray[np.int64]) -> None:
    """Reopen the formatting elements after the last marker that were closed with a block."""
    if not opened[_COUNTS, _LOST]:
        return
    first = opened[_COUNTS, _LISTED]
    while first > 0 and opened[_NAMED, first - 1] != _NONE:
        first -= 1
    opened[_COUNTS, _STEPS] += opened[_COUNTS, _LISTED] - first
    for listed in range(first, opened[_COUNTS, _LISTED]):
        if opened[_AT, listed] < 0:
            opened[_AT, listed] = opened[_COUNTS, _HEIGHT]
            _push(opened, opened[_NAMED, listed], _NONE, FORMATTING)
            opened[_COUNTS, _LOST] -= 1
            opened[_COUNTS, _NODES] += 1


@compiled
def _list(opened: NDArray[np.int64], name: int, bare: bool) -> None:
    """Append the top of the stack to the list of active formatting elements. At most three elements of one
    name without attributes are listed. The standard applies that limit also to equal attributes."""
    alike, earliest = 0, -1
    which = opened[_COUNTS, _LISTED] - 1
    while which >= 0 and opened[_NAMED, which] != _NONE:
        opened[_COUNTS, _STEPS] += 1
        if opened[_NAMED, which] == name and opened[_BARE, which]:
            alike, earliest = alike + 1, which
        which -= 1
    if bare and alike >= 3:
        _forget(opened, earliest)
    listed = opened[_COUNTS, _LISTED]
    if listed < MAX_LISTED:
        opened[_NAMED, listed], opened[_BARE, listed] = name, bare
        opened[_AT, listed] = opened[_COUNTS, _HEIGHT] - 1
    opened[_COUNTS, _LISTED] += 1


@compiled
def _in_scope(opened: NDArray[np.int64], first: int, second: int, also: int) -> int:
    """Index of the topmost element of that name in scope, or -1. `also` names an additional scope boundary,
    where _LI stands for `ol` and `ul`, too."""
    for place in range(opened[_COUNTS, _HEIGHT] - 1, -1, -1):
        opened[_COUNTS, _STEPS] += 1
        if opened[_FIRST, place] == first and opened[_SECOND, place] == second:
            return place
        if opened[_SORTS, place] & SCOPE:
            return -1
        if also != _NONE and opened[_SECOND, place] == _NONE:
            name = opened[_FIRST, place]
            if name == also or (also == _LI and (name in (_OL, _UL))):
                return -1
    return -1


@compiled
def _close_cells(opened: NDArray[np.int64], height: int) -> None:
    """Close parts of a table and their content until `height` elements remain."""
    cell = False
    for place in range(opened[_COUNTS, _HEIGHT] - 1, height - 1, -1):
        sorts = opened[_SORTS, place]
        cell = cell or ((sorts & TABLE_PART) != 0 and (sorts & MARKER) != 0)
    _pop(opened, height)
    if cell:
        _clear(opened)


@compiled
def _close_p(opened: NDArray[np.int64]) -> None:
    place = _in_scope(opened, _P, _NONE, _BUTTON)
    if place >= 0:
        _pop(opened, place)


@compiled
def _table_or_template(opened: NDArray[np.int64]) -> int:
    """Index of the topmost `table` or `template` in the stack, or -1."""
    for place in range(opened[_COUNTS, _HEIGHT] - 1, -1, -1):
        opened[_COUNTS, _STEPS] += 1
        name = opened[_FIRST, place]
        if opened[_SECOND, place] == _NONE and (name in (_TABLE, _TEMPLATE)):
            return place
    return -1


@compiled
def _close_inline(opened: NDArray[np.int64], first: int, second: int) -> None:
    """Handle any other end tag: close the element of that name unless a special element is in between."""
    for place in range(opened[_COUNTS, _HEIGHT] - 1, -1, -1):
        opened[_COUNTS, _STEPS] += 1
        if opened[_FIRST, place] == first and opened[_SECOND, place] == second:
            _pop(opened, place)
            return
        if opened[_SORTS, place] & SPECIAL:
            return


@compiled
def _is_listed(opened: NDArray[np.int64], name: int) -> bool:
    """Whether a formatting element of that name is listed after the last marker."""
    which = opened[_COUNTS, _LISTED] - 1
    while which >= 0 and opened[_NAMED, which] != _NONE and opened[_NAMED, which] != name:
        which -= 1
    opened[_COUNTS, _STEPS] += opened[_COUNTS, _LISTED] - which
    return bool(which >= 0 and opened[_NAMED, which] == name)


@compiled
def _close_formatting(opened: NDArray[np.int64], name: int) -> None:
    """Close a formatting element by the adoption agency algorithm: blocks opened within it stay open."""
    which = opened[_COUNTS, _LISTED] - 1
    while which >= 0 and opened[_NAMED, which] != _NONE and opened[_NAMED, which] != name:
        which -= 1
    opened[_COUNTS, _STEPS] += opened[_COUNTS, _LISTED] - which
    if which < 0 or opened[_NAMED, which] != name:
        _close_inline(opened, name, _NONE)
        return
    at = opened[_AT, which]
    if at < 0:
        _forget(opened, which)
        return
    blocks, last = 0, at
    for place in range(at + 1, opened[_COUNTS, _HEIGHT]):
        if opened[_SORTS, place] & SCOPE:
            opened[_COUNTS, _STEPS] += opened[_COUNTS, _HEIGHT] - at
            return
        if opened[_SORTS, place] & SPECIAL:
            blocks += 1
            last = place if blocks <= _TURNS else last
    if not blocks:
        _forget(opened, which)
        _pop(opened, at)
        return
    turns = min(blocks + 1, _TURNS)
    opened[_COUNTS, _NODES] += turns * _CLONES
    opened[_COUNTS, _STEPS] += turns * (opened[_COUNTS, _HEIGHT] - at)
    if blocks < _TURNS:
        _forget(opened, which)
        _pop(opened, last + 1)
    since_block = 0
    for place in range(last, at, -1):
        sorts = opened[_SORTS, place]
        since_block = 0 if sorts & SPECIAL else since_block + 1
        if since_block and (not sorts & FORMATTING or since_block > _INNER_TURNS):
            if sorts & FORMATTING:
                _unlist(opened, place)
            _remove(opened, place)
    if blocks < _TURNS:
        _remove(opened, at)


@compiled
def _drop(opened: NDArray[np.int64], name: int) -> None:
    """Remove the last formatting element of that name from list and stack, if it is still there."""
    which = opened[_COUNTS, _LISTED] - 1
    while which >= 0 and opened[_NAMED, which] != _NONE:
        if opened[_NAMED, which] == name:
            at = opened[_AT, which]
            _forget(opened, which)
            if at >= 0:
                _disown(opened, at)
            return
        which -= 1


@compiled
def _end_tag(opened: NDArray[np.int64], first: int, second: int, sorts: int) -> None:
    top = opened[_COUNTS, _HEIGHT] - 1
    # Within SVG and MathML an end tag closes the element of its name, searched up to the next HTML element.
    while top >= 0 and opened[_SORTS, top] & FOREIGN:
        opened[_COUNTS, _STEPS] += 1
        if opened[_FIRST, top] == first and opened[_SECOND, top] == second | _FOREIGN_NAME:
            _pop(opened, top)
            return
        top -= 1
    if first == _P and second == _NONE:
        if _in_scope(opened, _P, _NONE, _BUTTON) < 0:
            opened[_COUNTS, _NODES] += 1
        _close_p(opened)
    elif first == _BR and second == _NONE:
        _open_again(opened)
        opened[_COUNTS, _NODES] += 1
    elif first == _FORM and second == _NONE:
        place = _in_scope(opened, first, second, _NONE)
        if place >= 0:
            _disown(opened, place)
    elif first == _TEMPLATE and second == _NONE:
        for place in range(opened[_COUNTS, _HEIGHT] - 1, -1, -1):
            opened[_COUNTS, _STEPS] += 1
            if opened[_FIRST, place] == first and opened[_SECOND, place] == second:
                _pop(opened, place)
                _clear(opened)
                return
    elif sorts & TABLE_PART or (first == _TABLE and second == _NONE):
        for place in range(opened[_COUNTS, _HEIGHT] - 1, -1, -1):
            opened[_COUNTS, _STEPS] += 1
            if opened[_FIRST, place] == first and opened[_SECOND, place] == second:
                _close_cells(opened, place)
                return
            if opened[_SECOND, place] == _NONE and (
                opened[_FIRST, place] == _TABLE or opened[_FIRST, place] == _TEMPLATE
            ):
                return
    elif sorts & HEADING:
        for place in range(opened[_COUNTS, _HEIGHT] - 1, -1, -1):
            opened[_COUNTS, _STEPS] += 1
            if opened[_SORTS, place] & HEADING:
                _pop(opened, place)
                return
            if opened[_SORTS, place] & SCOPE:
                return
    elif sorts & BLOCK:
        place = _in_scope(opened, first, second, _LI if first == _LI else _NONE)
        if place >= 0:
            _pop(opened, place)
            if sorts & MARKER:
                _clear(opened)
    elif sorts & FORMATTING:
        _close_formatting(opened, first)
    elif first != _NONE:
        _close_inline(opened, first, second)


@compiled
def _imply_in_select(opened: NDArray[np.int64], but: int) -> None:
    """Within a `select`, generate the implied end tags before an `optgroup`, `option` or `hr`."""
    if _in_scope(opened, _SELECT, _NONE, _NONE) >= 0:
        _imply(opened, but)


@compiled
def _imply(opened: NDArray[np.int64], but: int) -> None:
    """Generate implied end tags, except for elements named `but`."""
    height = opened[_COUNTS, _HEIGHT]
    while opened[_SORTS, height - 1] & IMPLIED and opened[_FIRST, height - 1] != but:
        height -= 1
    _pop(opened, height)


@compiled
def _close_item(opened: NDArray[np.int64], one: int, other: int) -> None:
    """Close the open list item, or definition list item, before the next one."""
    for place in range(opened[_COUNTS, _HEIGHT] - 1, -1, -1):
        opened[_COUNTS, _STEPS] += 1
        name = opened[_FIRST, place]
        plain = opened[_SECOND, place] == _NONE
        if plain and (name in (one, other)):
            _pop(opened, place)
            return
        if opened[_SORTS, place] & (SPECIAL | SCOPE) and not (plain and (name in (_ADDRESS, _DIV, _P))):
            return


@compiled
def _close_table(opened: NDArray[np.int64]) -> None:
    """Close the open table before another, unless that one is nested in a cell or caption."""
    for place in range(opened[_COUNTS, _HEIGHT] - 1, -1, -1):
        opened[_COUNTS, _STEPS] += 1
        if opened[_SECOND, place] == _NONE:
            if opened[_FIRST, place] == _TABLE:
                _close_cells(opened, place)
                return
            if opened[_SORTS, place] & MARKER and opened[_SORTS, place] & (TABLE_PART | NO_TEXT):
                return


@compiled
def _table_part(opened: NDArray[np.int64], first: int, second: int, sorts: int) -> None:
    """Open a part of a table, closing the parts that cannot contain it. Outside a table it is ignored."""
    table = _table_or_template(opened)
    if table < 0:
        return
    if sorts & VOID:  # `col` and `colgroup`: what follows is not inside them
        _close_cells(opened, table + 1)
        opened[_COUNTS, _NODES] += 1  # a `colgroup` whose tag was omitted
        return
    cell = first in (_TD, _TH)
    group = row = -1
    for place in range(table + 1, opened[_COUNTS, _HEIGHT]):
        opened[_COUNTS, _STEPS] += 1
        if opened[_SECOND, place] == _NONE:
            if opened[_FIRST, place] in (_TBODY, _THEAD, _TFOOT):
                group = place
            elif opened[_FIRST, place] == _TR:
                row = place
    keep = table
    if cell or first == _TR:
        keep = row if cell and row >= 0 else max(group, table)
    _close_cells(opened, keep + 1)
    # Row groups and rows whose tags were omitted.
    if keep == table and opened[_FIRST, table] == _TABLE and (cell or first == _TR):
        _push(opened, _TBODY, _NONE, TABLE_PART | SPECIAL | NO_TEXT)
        keep += 1
        opened[_COUNTS, _NODES] += 1
    if cell and keep != row and opened[_FIRST, table] == _TABLE:
        _push(opened, _TR, _NONE, TABLE_PART | SPECIAL | NO_TEXT)
        opened[_COUNTS, _NODES] += 1
    _push(opened, first, second, sorts)
    if sorts & MARKER:
        _mark(opened)


@compiled
def _mark(opened: NDArray[np.int64]) -> None:
    if opened[_COUNTS, _LISTED] < MAX_LISTED:
        opened[_NAMED, opened[_COUNTS, _LISTED]], opened[_AT, opened[_COUNTS, _LISTED]] = _NONE, 0
    opened[_COUNTS, _LISTED] += 1


@compiled
def _start_tag(opened: NDArray[np.int64], first: int, second: int, sorts: int, bare: bool) -> bool:
    """Handle an HTML start tag; `bare` tells that it has no attributes. Returns whether raw text follows."""
    plain = second == _NONE
    # The parser searches the open elements, or the extractor pays for the depth.
    opened[_COUNTS, _STEPS] += opened[_COUNTS, _HEIGHT]
    opened[_COUNTS, _NODES] += 1
    opened[_COUNTS, _IN_SELECT] += 1
    if sorts & IGNORED:
        return False
    if sorts & TABLE_PART:
        _table_part(opened, first, second, sorts)
        return False
    if plain and first == _LI:
        _close_item(opened, _LI, _LI)
    elif plain and (first in (_DD, _DT)):
        _close_item(opened, _DD, _DT)
    elif plain and first == _OPTION:
        opened[_COUNTS, _STEPS] += opened[_COUNTS, _IN_SELECT]
        _imply_in_select(opened, _OPTGROUP)
        top = opened[_COUNTS, _HEIGHT] - 1
        if top >= 0 and opened[_FIRST, top] == _OPTION and opened[_SECOND, top] == _NONE:
            _pop(opened, top)
    elif plain and first == _BUTTON:
        place = _in_scope(opened, first, second, _NONE)
        if place >= 0:
            _pop(opened, place)
    elif plain and first == _SELECT:
        place = _in_scope(opened, first, second, _NONE)
        if place >= 0:
            _pop(opened, place)
            return False
        opened[_COUNTS, _IN_SELECT] = 0
    elif (plain and first == _HR) or first == _OPTGROUP:
        _imply_in_select(opened, _NONE)
        top = opened[_COUNTS, _HEIGHT] - 1
        if (
            first == _OPTGROUP
            and top >= 0
            and opened[_FIRST, top] == _OPTION
            and opened[_SECOND, top] == _NONE
        ):
            _pop(opened, top)
    elif plain and (first in (_RB, _RT, _RP, _RTC)):
        if _in_scope(opened, _RUBY, _NONE, _NONE) >= 0:
            _imply(opened, _RTC if first in (_RT, _RP) else _NONE)
    elif plain and first == _INPUT:
        place = _in_scope(opened, _SELECT, _NONE, _NONE)
        if place >= 0:
            _pop(opened, place)
    elif plain and first == _TABLE:
        _close_table(opened)
    if sorts & CLOSES_P:
        _close_p(opened)
    top = opened[_COUNTS, _HEIGHT] - 1
    if sorts & HEADING and top >= 0 and opened[_SORTS, top] & HEADING:
        _pop(opened, top)
    if not sorts & NO_TEXT:
        if plain and first == _A_ and _is_listed(opened, first):
            _close_formatting(opened, first)
            _drop(opened, first)
        elif plain and first == _NOBR and _in_scope(opened, first, second, _NONE) >= 0:
            _close_formatting(opened, first)
        _open_again(opened)
    if sorts & RAW:
        return True
    if sorts & VOID:
        return False
    _push(opened, first, second, sorts)
    if sorts & FORMATTING:
        _list(opened, first, bare)
    elif sorts & MARKER:
        _mark(opened)
    return False


@compiled
def _foreign_tag(
    opened: NDArray[np.int64], first: int, second: int, sorts: int, math: bool, closes: bool, encoding: int
) -> None:
    """Handle a start tag within SVG or MathML, or one that begins either."""
    opened[_COUNTS, _STEPS] += opened[_COUNTS, _HEIGHT]
    opened[_COUNTS, _NODES] += 1
    opened[_COUNTS, _IN_SELECT] += 1
    if closes:
        return
    made = FOREIGN | (MATH if math else 0)
    if sorts & (MATH_POINT if math else SVG_POINT):
        made |= POINT | SPECIAL | SCOPE
    elif math and first == _ANNOTATI and second == _ON_XML:
        made |= (POINT if encoding else 0) | SPECIAL | SCOPE
    _push(opened, first, second | _FOREIGN_NAME, made)


@compiled
def _is_html(opened: NDArray[np.int64], first: int, second: int) -> bool:
    """Whether a start tag of that name is parsed as HTML at the current position."""
    if not opened[_COUNTS, _HEIGHT]:
        return True
    top = opened[_SORTS, opened[_COUNTS, _HEIGHT] - 1]
    if not top & FOREIGN:
        return True
    if top & MATH and opened[_FIRST, opened[_COUNTS, _HEIGHT] - 1] == _ANNOTATI:
        return bool(top & POINT) or (first == _SVG and second == _NONE)
    if top & MATH and ((first == _MGLYPH and second == _NONE) or (first == _MALIGNMA and second == _RK)):
        return False
    return bool(top & POINT)


@compiled
def _text(opened: NDArray[np.int64], page: NDArray[np.uint8], start: int, end: int) -> None:
    """Handle text: it reopens formatting elements, except whitespace between parts of a table."""
    if start >= end or not opened[_COUNTS, _LOST]:
        return
    top = opened[_COUNTS, _HEIGHT] - 1
    if top < 0:
        _open_again(opened)
        return
    sorts, name = opened[_SORTS, top], opened[_FIRST, top]
    if sorts & FOREIGN and not sorts & POINT:
        return
    if opened[_SECOND, top] == _NONE and (name in (_TABLE, _TR, _TBODY, _THEAD, _TFOOT)):
        blank = True
        for place in range(start, end):
            blank = blank and _IS_BLANK[page[place]]
        if blank:
            return
    _open_again(opened)


@compiled
def _cost(
    page: NDArray[np.uint8], names: ElementFlags, opened: NDArray[np.int64]
) -> tuple[int, int, int, bool]:
    most_nodes, most_steps = NODES + len(page) // NODES_SHARE, STEPS + len(page) * STEPS_SHARE
    at = 0
    raw_end = -1  # where the end tag of the last raw text begins
    whole = True
    while True:
        start = at
        while at < len(page) and page[at] != _LESS:
            at += 1
        _text(opened, page, start, at)
        if at + 1 >= len(page):
            break
        top = opened[_COUNTS, _HEIGHT] - 1
        foreign = top >= 0 and (opened[_SORTS, top] & FOREIGN) != 0
        following = page[at + 1]
        closing = following == _SLASH
        begin = at + 1 + closing
        if following in (_BANG, _MARK):
            opened[_COUNTS, _NODES] += 1
            at = (
                _after_bogus(page, at + 2)
                if following == _MARK
                else _after_declaration(page, at + 2, foreign)
            )
        elif begin >= len(page) or not _A <= _IN_NAME[page[begin]] <= _Z:
            if closing:
                at = _after_bogus(page, begin)
                opened[_COUNTS, _NODES] += 1
            else:
                _text(opened, page, at, at + 1)
                at += 1
        else:
            ends_raw = at == raw_end
            end, first, second = _name(page, begin)
            at, attributes, closes, font, encoding = _attributes(page, end)
            if at > len(page):  # an unterminated tag is dropped
                break
            sorts = _sort_of(first, second, names)
            plain = second == _NONE
            opened[_COUNTS, _NODES] += attributes // 2
            if plain and (first in (_HTML, _BODY)):
                opened[_COUNTS, _ROOT_ATTRIBUTES] += attributes
                opened[_COUNTS, _STEPS] += attributes * opened[_COUNTS, _ROOT_ATTRIBUTES]
            opened[_COUNTS, _STEPS] += attributes * attributes // 2
            if ends_raw:
                pass  # it closes the element of the raw text, which was never among the open ones
            elif closing:
                if foreign and plain and (first in (_P, _BR)):
                    _leave_foreign(opened)
                _end_tag(opened, first, second, sorts)
            else:
                html_tag = _is_html(opened, first, second)
                if not html_tag and (sorts & BREAKOUT or (plain and first == _FONT and font)):
                    _leave_foreign(opened)
                    html_tag = True
                if encoding == 2 and first == _ANNOTATI:
                    whole = False
                if plain and first == _COL and top >= 0 and opened[_FIRST, top] == _TEMPLATE:
                    whole = False  # not modelled: the parser drops what follows and ignores raw text elements
                if html_tag and sorts & ROOT and plain:
                    _open_again(opened)
                    _foreign_tag(opened, first, second, sorts, first == _MATH_, closes, encoding)
                elif not html_tag:
                    in_math = (opened[_SORTS, opened[_COUNTS, _HEIGHT] - 1] & MATH) != 0
                    _foreign_tag(opened, first, second, sorts, in_math, closes, encoding)
                elif _start_tag(opened, first, second, sorts, not attributes):
                    if first == _PLAINTEX:
                        break
                    at = raw_end = _raw_end(page, at, first, second)
        whole = (
            whole
            and opened[_COUNTS, _MOST] <= MAX_DEPTH
            and opened[_COUNTS, _LISTED] <= MAX_LISTED
            and opened[_COUNTS, _NODES] <= most_nodes
            and opened[_COUNTS, _STEPS] <= most_steps
        )
        if not whole:
            break
    return opened[_COUNTS, _MOST], opened[_COUNTS, _NODES], opened[_COUNTS, _STEPS], whole


@compiled
def _leave_foreign(opened: NDArray[np.int64]) -> None:
    """Close SVG and MathML elements down to the next one whose content is HTML."""
    height = opened[_COUNTS, _HEIGHT]
    while height and opened[_SORTS, height - 1] & FOREIGN and not opened[_SORTS, height - 1] & POINT:
        height -= 1
    _pop(opened, height)


def _in_name() -> NDArray[np.uint8]:
    """Byte of a tag name -> its lower case, or 0 for a byte that ends the name (256,)."""
    table = np.arange(256, dtype=np.uint8)
    table[ord("A") : ord("Z") + 1] += ord("a") - ord("A")
    table[list(b" \t\n\f\r/>")] = 0
    return table


_IN_NAME: Final = _in_name()
_IS_BLANK: Final = np.isin(np.arange(256), list(b" \t\n\f\r"))
_AMPERSAND: Final = ord("&")
_HTML_TYPE, _XHTML_TYPE, _SECTION, _COMMENT, _COMMENT_END = (
    np.frombuffer(each, np.uint8)
    for each in (b"text/html", b"application/xhtml+xml", b"[CDATA[", b"!--", b"-->")
)
_TURNS: Final = 8
_INNER_TURNS: Final = 3
_CLONES: Final = _INNER_TURNS + 1
"""Limits of the adoption agency algorithm: outer iterations, inner iterations of each, and elements that one
outer iteration may create."""
_NAMES: Final = names()

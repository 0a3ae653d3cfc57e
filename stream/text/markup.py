"""What a page's markup costs a parser, before one sees it: a compiled loop over its bytes.

Parsers of HTML are linear but for some things: they look through open elements to find the one that an end
tag closes, open formatting elements again in every block, and compare each attribute with those before it. A
page of 100 KB can take a minute, or a gigabyte, with these. So the tags are followed as the parser follows
them (WHATWG HTML, 13.2.5 and 13.2.6), without a tree. Where that would take too many rules, more is counted
than there is.
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
    Names,
    names,
    slot_of,
    word,
)

MAX_DEPTH: Final = 1000
"""Deepest nesting that main-content extraction is trusted with. Its time grows with the square of the depth:
20 ms at 1000, 2.4 s at 10 000. Browsers stop at 512."""
MAX_LISTED: Final = 512
"""Most formatting elements that wait to be opened again."""
NODES: Final = 100_000
STEPS: Final = 8_000_000
"""What any page may have: elements, of up to 600 bytes and 4 microseconds each, and looks at open elements
and attributes, of up to 70 ns."""
NODES_SHARE: Final = 16
STEPS_SHARE: Final = 4
"""And a larger one: another node every so many bytes, so many steps a byte."""

_LESS, _GREATER, _SLASH, _BANG, _EQUAL, _DASH, _QUOTE, _APOSTROPHE, _OPENING, _CLOSING, _MARK = map(
    ord, "<>/!=-\"'[]?"
)
_A, _Z = ord("a"), ord("z")
_BLANK: Final = ord(" ")
_NONE: Final = 0
_FOREIGN_NAME: Final = 1 << 62
"""In the second word, tells an element of SVG or MathML from the HTML element of the same name."""
# Names of elements, and of the attributes color, face, size and encoding, as two words of eight letters each.
# Each is the first word: _PLAINTEX of `plaintext`. _ON_XML and _RK are second words, of `annotation-xml` and
# `malignmark`. _A_ is the element `a`, since _A is the letter; _MATH_ is `math`, since MATH is a flag.
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
"""Rows of what is open: of each element its name in two words, and what it is; of each formatting element in
the parser's list its name (0 for a marker), whether it has no attributes, and which open element it is (-1
for none); then the counts."""
_HEIGHT, _LISTED, _LOST, _NODES, _STEPS, _IN_SELECT, _ROOT_ATTRIBUTES, _MOST = range(8)
"""Places of counts: open elements, formatting elements in the parser's list, those of them that are closed,
nodes, steps, nodes since `<select>`, attributes of `html` and `body`, most open elements."""


class Cost(NamedTuple):
    """Of a page."""

    depth: int
    """Most elements open at once, up to MAX_DEPTH + 1."""
    nodes: int
    """Elements, comments, and half as many as there are attributes."""
    steps: int
    """Open elements, formatting elements and attributes that are looked at."""
    whole: bool
    """Whether the whole page was read, and not too much found before its end."""


def cost(page: bytes) -> Cost:
    """What parsing a page of UTF-8, and extracting its main content, takes."""
    opened = np.zeros((_COUNTS + 1, MAX_DEPTH), np.int64)
    return Cost(*_cost(np.frombuffer(page, np.uint8), _NAMES, opened))


def too_costly(page: bytes) -> bool:
    """Whether a parser would need more for a page of UTF-8 than for others of its size."""
    return not cost(page).whole


def stripped(page: bytes) -> str:
    """The text of a page of UTF-8 without tags, comments, scripts and the like, in linear time and without a
    parser: menus and all."""
    left = _stripped(np.frombuffer(page, np.uint8), _NAMES).tobytes().decode("utf-8", "replace")
    return _REFERENCE.sub(lambda found: html.unescape(found[0]), left)


_REFERENCE: Final = re.compile(
    r"&(?:#\d{1,7}(?!\d)|#[xX][0-9a-fA-F]{1,6}(?![0-9a-fA-F])|[a-zA-Z][a-zA-Z0-9]{1,31});?"
)


@compiled
def _sort_of(first: int, second: int, names: Names) -> int:
    slot = slot_of(first, second)
    while names.first[slot] != _NONE:
        if names.first[slot] == first and names.second[slot] == second:
            return int(names.sorts[slot])
        slot = slot + 1 & len(names.first) - 1
    return 0


@compiled
def _name(page: NDArray[np.uint8], at: int) -> tuple[int, int, int]:
    """Where a tag's name ends, and its letters; those of names that are too long are 0."""
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
    """Where the tag ends that goes on here, beyond the page if it does not; how many attributes it has;
    whether it closes itself; whether one makes a `font` HTML; what `encoding` says, 0 for nothing known, 1
    for HTML, 2 for what is hidden."""
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
    """Where the comment ends whose `<!--` ends here."""
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
    """Where the CDATA section ends that goes on here."""
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
    """Where the comment, document type or section ends whose `<!` ends here."""
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
    """Where the content of an element of raw text ends that begins here: at its end tag."""
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
            at += 2  # its dashes may be those of its end
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
def _stripped(page: NDArray[np.uint8], names: Names) -> NDArray[np.uint8]:
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
    """Close open elements down to so many."""
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
    """Forget the formatting elements since the last marker, and the marker."""
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
    """Nothing closes the element any more, but what it is in."""
    if place == opened[_COUNTS, _HEIGHT] - 1:
        _pop(opened, place)
    else:
        opened[_FIRST, place] = opened[_SECOND, place] = opened[_SORTS, place] = 0


@compiled
def _forget(opened: NDArray[np.int64], which: int) -> None:
    """Take a formatting element out of the list."""
    opened[_COUNTS, _LOST] -= opened[_AT, which] < 0
    for later in range(which + 1, opened[_COUNTS, _LISTED]):
        opened[_NAMED, later - 1] = opened[_NAMED, later]
        opened[_BARE, later - 1] = opened[_BARE, later]
        opened[_AT, later - 1] = opened[_AT, later]
    opened[_COUNTS, _LISTED] -= 1


@compiled
def _unlist(opened: NDArray[np.int64], place: int) -> None:
    """Take an open formatting element out of the list, if it is there."""
    opened[_COUNTS, _STEPS] += opened[_COUNTS, _LISTED]
    for which in range(opened[_COUNTS, _LISTED]):
        if opened[_NAMED, which] != _NONE and opened[_AT, which] == place:
            _forget(opened, which)
            return


@compiled
def _open_again(opened: NDArray[np.int64]) -> None:
    """Open the formatting elements that a block closed, since the last marker."""
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
    """The element on top of the stack is a formatting element. Of those without attributes no more than three
    of a name are listed; the standard wants that of those with equal ones, too."""
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
    """Place of the topmost element of that name that no scope hides, or -1. `also` is a name that hides, too;
    a list item is hidden by `ol` and `ul`."""
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
    """Close parts of a table, and what is in them."""
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
    """Place of the topmost one, or -1."""
    for place in range(opened[_COUNTS, _HEIGHT] - 1, -1, -1):
        opened[_COUNTS, _STEPS] += 1
        name = opened[_FIRST, place]
        if opened[_SECOND, place] == _NONE and (name in (_TABLE, _TEMPLATE)):
            return place
    return -1


@compiled
def _close_inline(opened: NDArray[np.int64], first: int, second: int) -> None:
    """An end tag that closes nothing special."""
    for place in range(opened[_COUNTS, _HEIGHT] - 1, -1, -1):
        opened[_COUNTS, _STEPS] += 1
        if opened[_FIRST, place] == first and opened[_SECOND, place] == second:
            _pop(opened, place)
            return
        if opened[_SORTS, place] & SPECIAL:
            return


@compiled
def _is_listed(opened: NDArray[np.int64], name: int) -> bool:
    """Whether a formatting element of that name is in the list, since the last marker."""
    which = opened[_COUNTS, _LISTED] - 1
    while which >= 0 and opened[_NAMED, which] != _NONE and opened[_NAMED, which] != name:
        which -= 1
    opened[_COUNTS, _STEPS] += opened[_COUNTS, _LISTED] - which
    return bool(which >= 0 and opened[_NAMED, which] == name)


@compiled
def _close_formatting(opened: NDArray[np.int64], name: int) -> None:
    """The adoption agency: blocks within the element stay open."""
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
    """Take the last formatting element of that name out of list and stack, if it is still there."""
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
    # In SVG and MathML an element is closed by its own name, up to where HTML begins.
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
    """In a `select`, close what an option or a line cannot be in."""
    if _in_scope(opened, _SELECT, _NONE, _NONE) >= 0:
        _imply(opened, but)


@compiled
def _imply(opened: NDArray[np.int64], but: int) -> None:
    """Close what may lack its end tag, but for elements of that name."""
    height = opened[_COUNTS, _HEIGHT]
    while opened[_SORTS, height - 1] & IMPLIED and opened[_FIRST, height - 1] != but:
        height -= 1
    _pop(opened, height)


@compiled
def _close_item(opened: NDArray[np.int64], one: int, other: int) -> None:
    """Before a list item, the one that is open."""
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
    """Before a table, the one that is open, unless this one stands in a cell or a caption of it."""
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
    """A part of a table closes those that it cannot be in; outside a table it is nothing."""
    table = _table_or_template(opened)
    if table < 0:
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
    # Groups and rows that nobody wrote.
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
    """An HTML start tag, with or without attributes. Whether its content is raw text."""
    plain = second == _NONE
    opened[_COUNTS, _STEPS] += opened[
        _COUNTS, _HEIGHT
    ]  # a look through open elements, or deeper main content
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
    """A start tag of SVG or MathML."""
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
    """Whether a start tag of that name is HTML where it stands."""
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
    """Text opens formatting elements again, but for blanks between parts of a table."""
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
def _cost(page: NDArray[np.uint8], names: Names, opened: NDArray[np.int64]) -> tuple[int, int, int, bool]:
    most_nodes, most_steps = NODES + len(page) // NODES_SHARE, STEPS + len(page) * STEPS_SHARE
    at = 0
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
            end, first, second = _name(page, begin)
            at, attributes, closes, font, encoding = _attributes(page, end)
            if at > len(page):  # a tag without an end is none
                break
            sorts = _sort_of(first, second, names)
            plain = second == _NONE
            opened[_COUNTS, _NODES] += attributes // 2
            if plain and (first in (_HTML, _BODY)):
                opened[_COUNTS, _ROOT_ATTRIBUTES] += attributes
                opened[_COUNTS, _STEPS] += attributes * opened[_COUNTS, _ROOT_ATTRIBUTES]
            opened[_COUNTS, _STEPS] += attributes * attributes // 2
            if closing:
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
                    whole = False  # the parser drops what follows, and does not take raw text for such
                if html_tag and sorts & ROOT and plain:
                    _open_again(opened)
                    _foreign_tag(opened, first, second, sorts, first == _MATH_, closes, encoding)
                elif not html_tag:
                    in_math = (opened[_SORTS, opened[_COUNTS, _HEIGHT] - 1] & MATH) != 0
                    _foreign_tag(opened, first, second, sorts, in_math, closes, encoding)
                elif _start_tag(opened, first, second, sorts, not attributes):
                    if first == _PLAINTEX:
                        break
                    at = _raw_end(page, at, first, second)
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
    """Close SVG and MathML up to where HTML begins."""
    height = opened[_COUNTS, _HEIGHT]
    while height and opened[_SORTS, height - 1] & FOREIGN and not opened[_SORTS, height - 1] & POINT:
        height -= 1
    _pop(opened, height)


def _in_name() -> NDArray[np.uint8]:
    """Byte of a tag's name -> the same in lower case, 0 for what ends a name (256,)."""
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
"""The adoption agency's rounds, the inner ones of each, and the elements that it may make."""
_NAMES: Final = names()

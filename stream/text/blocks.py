"""A page's HTML as a flat list of blocks of text within containers, read by a compiled loop over its bytes.

No tree is built: start tags of containers open one, end tags close the nearest one of that name, and the tags
that imply an end are those of lists and tables. Time and memory are linear in the page, whatever it contains.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled, inlined
from stream.text.markup import (
    APOSTROPHE,
    BANG,
    EQUAL,
    GREATER,
    IN_NAME,
    IS_BLANK,
    LESS,
    MARK,
    QUOTE,
    SLASH,
    A,
    Z,
    after_bogus,
    after_declaration,
    raw_end,
    tag_name,
    word,
)

DEPTH: Final = 256
"""Most containers open at once; deeper ones belong to the deepest."""
MOST_NAMES: Final = 1 << 18
"""Most names that are read of a page."""
SEARCH: Final = 64
"""Open containers among which the one that an end tag closes is looked for."""

CONTAINER: Final = 1
"""Element whose text is content or not as a whole."""
BREAK: Final = 1 << 1
"""Its tags end a block."""
TITLE: Final = 1 << 2
LIST: Final = 1 << 3
ITEM: Final = 1 << 4
CELL: Final = 1 << 5
TABLE: Final = 1 << 6
SILENT: Final = 1 << 7
"""Its text is none of the page's: forms' controls, scripts, hidden parts."""
RAW: Final = 1 << 8
"""Its content has no tags. It is displayed if the element is a BREAK, too."""
BAR: Final = 1 << 9
"""Navigation, by element, role or name."""
BOX: Final = 1 << 10
"""Beside the text, or about it: `aside`, and names such as related, share, comments."""
COMMENTS: Final = 1 << 11
CONTENT: Final = 1 << 12
"""Named or marked as the main content."""
PARAGRAPH: Final = 1 << 13
CODE: Final = 1 << 14
LINK: Final = 1 << 15
LINE: Final = 1 << 16
FOREIGN: Final = 1 << 17
"""A `/` at the end of its start tag closes it, and so it does those in it."""
CONSENT: Final = 1 << 21
"""Named after a platform that asks visitors for consent."""
RUBY: Final = 1 << 19
"""Its tags begin or end the sound of characters, which is no word of the text (`rt`, `rp`)."""
CONTROL: Final = 1 << 20
SHADOW: Final = 1 << 18
"""Marked as a shadow root, which is displayed in place of the element around it."""

_ELEMENTS: Final[dict[int, str]] = {
    CONTAINER | BREAK: "article aside blockquote body center dd details dialog div dl fieldset figure footer "
    "form header hgroup li main menu nav ol search section table td th ul template svg math object "
    "select button datalist canvas audio video",
    BREAK: "p h1 h2 h3 h4 h5 h6 pre dt tr caption figcaption address hr summary legend tbody thead tfoot "
    "option listing marquee optgroup xmp plaintext",
    TITLE: "h1 h2 h3 h4 h5 h6",
    LIST: "ul ol menu",
    ITEM: "li",
    CELL: "td th",
    TABLE: "table",
    SILENT: "template svg math object select button datalist canvas audio video",
    RAW: "iframe noembed noframes noscript plaintext script style textarea title xmp",
    BAR: "nav footer menu",
    BOX: "aside",
    CONTENT: "article main",
    PARAGRAPH: "p pre blockquote",
    CODE: "code pre tt dt kbd",
    LINK: "a",
    LINE: "br",
    FOREIGN: "svg math",
    RUBY: "ruby rb rt rp rtc",
    CONTROL: "input textarea select button",
}
_CODES: Final = [
    "body",
    "article",
    "main",
    "section",
    "div",
    "p",
    "span",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "footer",
    "nav",
    "aside",
    "form",
    "figure",
    "figcaption",
    "blockquote",
    "pre",
    "ul",
    "ol",
    "menu",
    "li",
    "dl",
    "dt",
    "dd",
    "table",
    "caption",
    "thead",
    "tbody",
    "tfoot",
    "tr",
    "td",
    "th",
    "address",
    "details",
    "summary",
    "dialog",
    "fieldset",
    "legend",
    "center",
    "hr",
]
"""Elements that features tell apart (`stream.text.block_features`). The code of an element is its place here
and 1; others have 0."""
ARTICLE, HEADER, FORM, FIGURE, BLOCKQUOTE = (
    _CODES.index(name) + 1 for name in ("article", "header", "form", "figure", "blockquote")
)
_WORDS: Final[dict[int, str]] = {
    BAR: "nav navbar navigation menu submenu topnav footer breadcrumb breadcrumbs masthead pagination pager "
    "contentinfo topnav subnav bottomnav navlist docnav toolbar cookie cookies consent gdpr skip",
    BOX: "sidebar aside related recommended recommend share sharing social addthis sharethis widget widgets "
    "promo promotion ad ads advert advertisement sponsor sponsored popup modal newsletter subscribe signup "
    "login complementary trending popular tools poll outbrain taboola",
    COMMENTS: "comment comments disqus respond trackback trackbacks pingback commentlist",
    CONSENT: "onetrust cookiebot usercentrics didomi borlabs trustarc truste cookieyes complianz cmplz "
    "cookielaw iubenda termly osano quantcast cookieconsent klaro axeptio",
    CONTENT: "article entry post content body main story articlebody hentry",
}
_SLOTS: Final = 1 << 10
_MIX: Final = 0x1E37_79B9_7F4A_7C15
_CLASS, _ID, _ROLE, _STYLE, _HIDDEN, _ITEMPROP, _HREF, _OPEN, _CLOSED = map(
    word, ("class", "id", "role", "style", "hidden", "itemprop", "href", "open", "closed")
)
_SHADOW_MODE: Final = (word("shadowro"), word("otmode"))

LITERAL_AND: Final = 0
"""In texts, an `&` that begins no character reference. No page has this byte."""
START, END, SIZE, LINKED, INSIDE, KIND, ELEMENT, LINKS = range(8)
"""Columns of blocks: where the text is, [START, END); its size, and how much of it is in links, in bytes that
are no white space (letters of two bytes count one); number of the container; flags and code of the element;
number of links."""
PARENT, FLAGS, CODE_OF, SHAPE, CONTROLS = range(5)
"""Columns of containers: number of the one around; flags and code of the element; a hash of the element with
its names, which those of one template share; number of controls of forms directly in it."""
OWNER, NAME = range(2)
"""Columns of names: the container, or -1 less the number of a block; a hash of the word."""


class Blocks(NamedTuple):
    """A page."""

    text: NDArray[np.uint8]
    blocks: NDArray[np.int32]
    """Shape (blocks, 8)."""
    containers: NDArray[np.int32]
    """Shape (containers, 5). Number 0 is the page, and its own parent; a parent comes before its children."""
    names: NDArray[np.int32]
    """Words of the attributes class, id, role and itemprop. Shape (names, 2)."""
    title: NDArray[np.uint8]
    """Text of the element `title`, as it stands in the page."""
    code: int
    """Number of elements that hold code, or terms that are defined; of those that are blocks, with text: the
    pictures of old galleries stand in such terms."""


def read(page: bytes) -> Blocks:
    """The blocks of a UTF-8 page that have text, in the order of the page."""
    source = np.frombuffer(page, np.uint8)
    tags = page.count(b"<") + 2
    text = np.empty(len(page) + 2, np.uint8)
    blocks = np.empty((tags, 8), np.int32)
    containers = np.empty((tags, 5), np.int32)
    names = np.empty((min(len(page) // 2, MOST_NAMES), 2), np.int32)
    length, count, held, named, start, end, code = _read(source, text, blocks, containers, names)
    return Blocks(text[:length], blocks[:count], containers[:held], names[:named], source[start:end], code)


def _table(names: dict[int, str]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """A hash table with open addressing from the first 8 letters of a name to its flags; key 0 is a free
    slot. Shapes (1024,)."""
    flags: dict[int, int] = {}
    for flag, listed in names.items():
        for name in listed.split():
            key = word(name[:8])
            flags[key] = flags.get(key, 0) | flag
    return _hashed(flags)


def _hashed(flags: dict[int, int]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    keys, values = np.zeros(_SLOTS, np.int64), np.zeros(_SLOTS, np.int32)
    for key, flag in flags.items():
        slot = key * _MIX >> 40 & _SLOTS - 1
        while keys[slot]:
            slot = slot + 1 & _SLOTS - 1
        keys[slot], values[slot] = key, flag
    return keys, values


HASH_START: Final = 0x1D


@inlined
def hashed_letter(value: int, letter: int) -> int:
    """The hash, in 31 bits, of a word and the letter after it."""
    value = (value ^ letter) * 0x0100_0193 & 0x7FFF_FFFF
    return value ^ value >> 15


@compiled
def _flags_of(key: int, keys: NDArray[np.int64], flags: NDArray[np.int32]) -> int:
    slot = key * _MIX >> 40 & _SLOTS - 1
    while keys[slot]:
        if keys[slot] == key:
            return int(flags[slot])
        slot = slot + 1 & _SLOTS - 1
    return 0


@compiled
def _flags_of_element(first: int, second: int) -> int:
    """Those of an element, by both halves of its name: `template-view` is no `template`."""
    if second and second != _flags_of(first, _LONG_KEYS, _LONG_ENDS):
        return 0
    return _flags_of(first, _ELEMENT_KEYS, _ELEMENT_FLAGS)


@compiled
def _rest_of_tag(
    page: NDArray[np.uint8], at: int, named: bool, owner: int, names: NDArray[np.int32], count: int
) -> tuple[int, int, int]:
    """The end of the tag (beyond the page if it is not closed), what its attributes say of the element, and
    the number of names with its own, which are read only if `named`."""
    flags = 0
    while True:
        while at < len(page) and (IS_BLANK[page[at]] or page[at] == SLASH):
            at += 1
        if at >= len(page):
            return len(page) + 1, flags, count
        if page[at] == GREATER:
            return at + 1, flags, count
        name_start, name = at, 0
        at += 1
        while at < len(page) and IN_NAME[page[at]] and page[at] != EQUAL:
            at += 1
        name_end = at
        if at - name_start <= 8:
            for place in range(name_start, at):
                name = name << 8 | int(IN_NAME[page[place]])
        if name == _HREF:
            flags |= LINK
        elif name == _HIDDEN:
            flags |= SILENT
        while at < len(page) and IS_BLANK[page[at]]:
            at += 1
        if at >= len(page) or page[at] != EQUAL:
            continue
        at += 1
        while at < len(page) and IS_BLANK[page[at]]:
            at += 1
        if at >= len(page) or page[at] == GREATER:
            continue
        start = at
        if page[at] == QUOTE or page[at] == APOSTROPHE:
            quote, start = page[at], at + 1
            at += 1
            while at < len(page) and page[at] != quote:
                at += 1
            end = at
            at += 1
        else:
            while at < len(page) and not IS_BLANK[page[at]] and page[at] != GREATER:
                at += 1
            end = at
        if named and name in (_CLASS, _ID, _ROLE, _STYLE, _ITEMPROP):
            end = min(end, len(page))
            if name == _STYLE:
                flags |= _flags_of_style(page, start, end)
            else:
                more, count = _names_of_value(page, start, end, owner, names, count)
                flags |= more
        elif named and not name and _is_shadow_mode(page[name_start:name_end], page[start:end]):
            flags |= SHADOW


@compiled
def _is_shadow_mode(name: NDArray[np.uint8], value: NDArray[np.uint8]) -> bool:
    """Whether an attribute makes a template a shadow root."""
    _, first, second = tag_name(name, 0)
    return (first, second) == _SHADOW_MODE and tag_name(value, 0) in ((4, _OPEN, 0), (6, _CLOSED, 0))


@compiled
def _flags_of_style(page: NDArray[np.uint8], at: int, end: int) -> int:
    """SILENT if a style hides the element."""
    key = letters = 0
    display = False
    while at <= end:
        letter = int(page[at]) | 0x20 if at < end else 0
        if A <= letter <= Z:
            if letters < 8:
                key = key << 8 | letter
            letters += 1
        elif letters:
            if key == _NONE_WORD and display:
                return SILENT
            display = key == _DISPLAY
            key = letters = 0
        at += 1
    return 0


@compiled
def _names_of_value(
    page: NDArray[np.uint8], at: int, end: int, owner: int, names: NDArray[np.int32], count: int
) -> tuple[int, int]:
    """Add the words of an attribute's value to the names of `owner`. Returns what they say of the element,
    and the number of names."""
    flags = key = letters = 0
    name = HASH_START
    while at <= end:
        letter = int(page[at]) if at < end else 0
        lower = letter | 0x20
        if A <= lower <= Z or letter >= 0x80:
            letter = letter if letter >= 0x80 else lower
            if letters < 8:
                key = key << 8 | letter
            name = hashed_letter(name, letter)
            letters += 1
        elif letters:
            flags |= _flags_of(key, _WORD_KEYS, _WORD_FLAGS)
            if count < len(names):
                names[count, OWNER], names[count, NAME] = owner, name
                count += 1
            key = letters = 0
            name = HASH_START
        at += 1
    return flags, count


_NONE_WORD, _DISPLAY = word("none"), word("display")


@compiled
def _closes(kind: int, first: int, kinds: NDArray[np.int32], names: NDArray[np.int64], height: int) -> int:
    """How many containers remain open when a tag of that kind implies the end of others."""
    for place in range(height - 1, max(0, height - SEARCH), -1):
        if kind & ITEM:
            if kinds[place] & ITEM:
                return place
            if kinds[place] & (LIST | CELL):
                return height
        elif kind & CELL or first in (_TR, _TBODY):
            if kinds[place] & CELL:
                return place
            if kinds[place] & TABLE:
                return height
        elif names[place] == first:  # `dd`
            return place
        elif kinds[place] & (CELL | ITEM) or names[place] == _DL:
            return height
    return height


_TR, _TBODY, _DD, _DT, _DL = map(word, ("tr", "tbody", "dd", "dt", "dl"))


@compiled
def _copy_raw(
    page: NDArray[np.uint8], at: int, end: int, text: NDArray[np.uint8], length: int
) -> tuple[int, int]:
    """Copy raw text that is displayed to the start of a block. Returns the end of the text, and its size."""
    size, blank = 0, True
    for place in range(at, end):
        letter = page[place]
        if IS_BLANK[letter]:
            if not blank:
                text[length] = _SPACE
                length += 1
            blank = True
            continue
        text[length] = LITERAL_AND if letter == _AND else letter
        length += 1
        blank = False
        size += not 0xC0 <= letter < 0xE0
    return length, size


# One loop: five ways to take it apart took 78 to 111 ms for 302 pages of 25.5 MB, this one 70 to 73 ms.
@compiled
def _read(  # noqa: C901
    page: NDArray[np.uint8],
    text: NDArray[np.uint8],
    blocks: NDArray[np.int32],
    containers: NDArray[np.int32],
    names_found: NDArray[np.int32],
) -> tuple[int, int, int, int, int, int, int]:
    names = np.zeros(DEPTH, np.int64)
    kinds = np.zeros(DEPTH, np.int32)
    numbers = np.zeros(DEPTH, np.int32)
    containers[0] = 0
    height, held, count, length, code = 1, 1, 0, 0, 0
    start = size = linked = kind = element = links = named = title = title_end = 0
    in_link = False
    blank = True
    silent = False
    at = shown = 0
    while at < len(page):
        letter = page[at]
        if letter != LESS or at + 1 == len(page):
            if not silent:
                if IS_BLANK[letter]:
                    if not blank:
                        text[length] = _SPACE
                        length += 1
                        blank = True
                else:
                    text[length] = letter
                    length += 1
                    blank = False
                    # Every byte of letters of three or four; one of those of two.
                    if not 0xC0 <= letter < 0xE0:
                        size += 1
                        linked += in_link
            at += 1
            continue
        following = page[at + 1]
        if following == BANG:
            at = after_declaration(page, at + 2)
            continue
        if following == MARK:
            at = after_bogus(page, at + 2)
            continue
        closing = following == SLASH
        begin = at + 1 + closing
        if begin >= len(page) or not A <= IN_NAME[page[begin]] <= Z:
            if closing:
                at = after_bogus(page, begin)
            else:
                if not silent:
                    text[length] = letter
                    length += 1
                    blank = False
                at += 1
            continue
        at, first, second = tag_name(page, begin)
        flags = _flags_of_element(first, second)
        is_named = not closing and flags & BREAK != 0
        owner = held if flags & CONTAINER else -1 - count - (size > 0)
        before = named
        at, attributes, named = _rest_of_tag(page, at, is_named, owner, names_found, named)
        if at > len(page):
            break
        closed = page[at - 2] == SLASH and (flags | kinds[height - 1]) & FOREIGN != 0
        if flags & RAW and not closing and not closed:
            end = len(page) if first == _PLAINTEX else raw_end(page, at, first, second)
            if not flags & BREAK:
                if first == _TITLE and not title_end and not silent:
                    title, title_end = at, end
                containers[numbers[height - 1], CONTROLS] += flags & CONTROL != 0
                at = end
                continue
            shown = end
        if flags & LINK:
            in_link = not closing and attributes & LINK != 0
            links += in_link
        if flags & LINE and not silent:
            text[length] = _NEWLINE
            length += 1
            blank = True
        if flags & CODE and not flags & BREAK and not closing:
            code += 1
        if flags & CONTROL and not closing:
            containers[numbers[height - 1], CONTROLS] += 1
        if flags & RUBY:
            silent = (not closing and first in (_RT, _RP)) or kinds[height - 1] & SILENT != 0
        if not flags & BREAK:
            continue
        # The block ends.
        if size:
            block = blocks[count]
            block[START], block[END], block[SIZE], block[LINKED] = start, length, size, linked
            block[INSIDE], block[KIND], block[ELEMENT], block[LINKS] = (
                numbers[height - 1],
                kind,
                element,
                links,
            )
            count += 1
            code += kind & CODE != 0
            text[length] = _NEWLINE
            length += 1
        else:
            length = start
        start, size, linked, links, blank = length, 0, 0, 0, True
        kind = 0 if closing else flags
        element = 0 if closing else _flags_of(first, _CODE_KEYS, _CODE_VALUES)
        if closing:
            if flags & CONTAINER:
                for place in range(height - 1, max(0, height - SEARCH), -1):
                    if names[place] == first:
                        height = place
                        break
                    if kinds[place] & CELL and not flags & (CELL | TABLE):
                        break
        else:
            if flags & (ITEM | CELL) or first in (_TR, _TBODY, _DD, _DT):
                height = _closes(flags, _DD if first == _DT else first, kinds, names, height)
            if first == _BODY:
                attributes &= ~SILENT  # shown by a script
            if first == _TEMPLATE and attributes & SHADOW:
                flags &= ~SILENT
            if flags & CONTAINER and height < DEPTH and not closed:
                names[height] = first
                kinds[height] = flags | attributes | (kinds[height - 1] & SILENT)
                container = containers[held]
                container[PARENT], container[FLAGS] = numbers[height - 1], flags | attributes
                container[CODE_OF], container[CONTROLS] = element, 0
                shape = element + 1
                for each in range(before, named):
                    shape = hashed_letter(shape * 31, names_found[each, NAME])
                container[SHAPE] = shape
                numbers[height] = held
                held += 1
                height += 1
        silent = kinds[height - 1] & SILENT != 0
        if shown > at:
            if not silent:
                length, size = _copy_raw(page, at, shown, text, length)
                linked = size if in_link else 0
            at = shown
    if size:
        block = blocks[count]
        block[START], block[END], block[SIZE], block[LINKED] = start, length, size, linked
        block[INSIDE], block[KIND], block[ELEMENT], block[LINKS] = numbers[height - 1], kind, element, links
        count += 1
        code += kind & CODE != 0
    return length, count, held, named, title, title_end, code


_SPACE, _NEWLINE, _AND = map(ord, " \n&")
_PLAINTEX: Final = word("plaintex")
_BODY, _TEMPLATE = word("body"), word("template")
_RT, _RP, _TITLE = word("rt"), word("rp"), word("title")
_ELEMENT_KEYS, _ELEMENT_FLAGS = _table(_ELEMENTS)
_CODE_KEYS, _CODE_VALUES = _hashed({word(name[:8]): code for code, name in enumerate(_CODES, 1)})
_LONG_KEYS, _LONG_ENDS = _hashed(
    {word(name[:8]): word(name[8:]) for names in _ELEMENTS.values() for name in names.split() if name[8:]}
)
"""The first 8 letters of long names of elements, and the rest of them."""
_WORD_KEYS, _WORD_FLAGS = _table(_WORDS)

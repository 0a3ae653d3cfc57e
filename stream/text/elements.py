"""How the HTML parser treats each element, as flags by element name (WHATWG HTML, 13.2.4 and 13.2.6)."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled

VOID: Final = 1
"""Void element: never has content."""
IGNORED: Final = 1 << 1
"""Exists once, at a fixed place in the tree. A further tag at most adds attributes."""
RAW: Final = 1 << 2
"""Raw text element: everything up to its end tag is text."""
FORMATTING: Final = 1 << 3
"""Formatting element: reopened after a block that closed it."""
SPECIAL: Final = 1 << 4
"""Special element: stops the search for an inline element to close."""
SCOPE: Final = 1 << 5
"""Scope boundary: stops the search for a block to close."""
BLOCK: Final = 1 << 6
"""Its end tag also closes the elements open within it."""
CLOSES_P: Final = 1 << 7
"""Its start tag closes an open paragraph."""
NO_TEXT: Final = 1 << 8
"""Its start tag does not reopen formatting elements."""
TABLE_PART: Final = 1 << 9
HEADING: Final = 1 << 10
MARKER: Final = 1 << 11
"""Puts a marker on the list of formatting elements: those opened outside are not reopened inside."""
BREAKOUT: Final = 1 << 12
"""An HTML start tag that ends SVG and MathML content."""
SVG_POINT: Final = 1 << 13
"""HTML integration point in SVG: its content is HTML."""
MATH_POINT: Final = 1 << 14
"""Text integration point in MathML: its content is HTML."""
FOREIGN: Final = 1 << 15
"""Set on open elements: this one is SVG or MathML."""
MATH: Final = 1 << 16
"""Set on open elements: this one is MathML."""
POINT: Final = 1 << 17
"""Set on open foreign elements: the content of this one is HTML."""
ROOT: Final = 1 << 18
"""Begins SVG or MathML content."""
IMPLIED: Final = 1 << 19
"""Its end tag may be implied."""

_NAMES: Final[dict[int, str]] = {
    VOID: "area base basefont bgsound br col colgroup embed hr image img input keygen link meta param "
    "source track wbr",
    IGNORED: "html head body frame frameset",
    RAW: "iframe noembed noframes plaintext script style textarea title xmp",
    FORMATTING: "a b big code em font i nobr s small strike strong tt u",
    SPECIAL: "address applet article aside blockquote button caption center dd details dir div dl dt "
    "fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header hgroup li listing main marquee menu nav "
    "noscript object ol p pre search section select summary table tbody td template tfoot th thead tr "
    "ul",
    SCOPE: "applet caption marquee object select table td template th",
    BLOCK: "address applet article aside blockquote button center dd details dialog dir div dl dt fieldset "
    "figcaption figure footer h1 h2 h3 h4 h5 h6 header hgroup li listing main marquee menu nav object "
    "ol p pre search section select summary ul",
    CLOSES_P: "address article aside blockquote center dd details dialog dir div dl dt fieldset figcaption "
    "figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr li listing main menu nav ol p plaintext "
    "pre search section summary ul xmp",
    NO_TEXT: "address article aside base basefont bgsound blockquote caption center col colgroup dd details "
    "dialog dir div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr "
    "iframe li link listing main menu meta nav noembed noframes ol p param plaintext pre rb rp rt rtc "
    "script search section source style summary table tbody td template textarea tfoot th thead title "
    "tr track ul",
    TABLE_PART: "caption col colgroup tbody td tfoot th thead tr",
    HEADING: "h1 h2 h3 h4 h5 h6",
    MARKER: "applet caption marquee object td template th",
    BREAKOUT: "b big blockquote body br center code dd div dl dt em embed h1 h2 h3 h4 h5 h6 head hr i img li "
    "listing menu meta nobr ol p pre ruby s small span strike strong sub sup table tt u ul var",
    SVG_POINT: "desc foreignobject title",
    MATH_POINT: "mi mn mo ms mtext",
    ROOT: "math svg",
    IMPLIED: "dd dt li optgroup option p rb rp rt rtc",
}  # fmt: skip
LETTERS: Final = 15
"""Longest name in the table. No known element has a longer one."""
_SLOTS: Final = 1 << 9
_MIX: Final = 0x1E37_79B9_7F4A_7C15


class ElementFlags(NamedTuple):
    """A hash table with open addressing from element names to flags; each array has the shape (512,).

    A name of up to 15 letters is packed into two integers, `first` and `second`. 0 in `first` marks a free
    slot. `sorts` holds the flags.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    sorts: NDArray[np.int64]


def word(letters: str) -> int:
    """Up to 8 letters packed into an integer, big-endian."""
    return int.from_bytes(letters.encode(), "big")


@compiled
def slot_of(first: int, second: int) -> int:
    """The first slot at which a name is looked up."""
    return (first ^ second) * _MIX >> 40 & _SLOTS - 1


def names() -> ElementFlags:
    """The hash table of all elements that have flags."""
    sorts: dict[str, int] = {}
    for sort, listed in _NAMES.items():
        for name in listed.split():
            sorts[name] = sorts.get(name, 0) | sort
    made = ElementFlags(np.zeros(_SLOTS, np.int64), np.zeros(_SLOTS, np.int64), np.zeros(_SLOTS, np.int64))
    for name, sort in sorts.items():
        first, second = word(name[:8]), word(name[8:])
        slot = int(first ^ second) * _MIX >> 40 & _SLOTS - 1
        while made.first[slot]:
            slot = slot + 1 & _SLOTS - 1
        made.first[slot], made.second[slot], made.sorts[slot] = first, second, sort
    return made

"""Normalisation of a batch in a compiled loop: `normalise` of each text, as code points in one array.

Both use the table of `mapping`, and the standard library where the table does not decide. `normalise` serves
a single page, whose command need not import the compiler (0.6 s), recipes, and the words of dictionaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled
from stream.text.normalise import (
    DROPPED,
    EXPANDED,
    SPECIAL,
    Mapping,
    bounded,
    is_unspaced,
    mapping,
    reference,
)
from stream.text.points import NUL, SPACE, Points, bounds_of, utf32

_SLICE: Final = 1 << 18
"""Characters of a long text that are converted at a time, which bounds the memory of the copies."""
_BLOCK: Final = 64
"""Characters mapped at once by the fast path, which assumes that each maps to one. The output array always
has room for one more block."""
_LEAST_ROOM: Final = 4096
"""Least growth of an output array that is full. No character expands to nearly as many."""


def normalised_points(texts: Sequence[str]) -> Points:
    """The normalised code points of any texts."""
    if all(map(str.isascii, texts)):
        lowered = NUL.join([*texts, ""]).lower().encode()
        return Points(np.frombuffer(lowered, np.uint8), bounds_of([len(text) + 1 for text in texts]))
    texts = [bounded(text) for text in texts]
    points, bounds = _of_one(texts[0]) if len(texts) == 1 else _of_several(texts)
    bounds = _without_blanks(points, bounds, is_unspaced())
    return Points(points[: bounds[-1]], bounds)


def _of_several(texts: list[str]) -> tuple[NDArray[np.uint32], NDArray[np.intp]]:
    """The points of texts, and their bounds, before blanks are dropped."""
    encoded = [text.encode("utf-16-le", "surrogatepass") for text in texts]
    points, bounds, special = _mapped_texts(
        _utf16(b"\0\0".join([*encoded, b""])), bounds_of([len(each) // 2 + 1 for each in encoded]), mapping()
    )
    if special.any():
        # Texts whose characters depend on their neighbours go through the standard library.
        parts = [
            utf32(reference(text) + NUL) if odd else points[start:end]
            for text, odd, (start, end) in zip(
                texts, special.tolist(), pairwise(bounds.tolist()), strict=True
            )
        ]
        return np.concatenate(parts), bounds_of([part.size for part in parts])
    return points, bounds


def _of_one(text: str) -> tuple[NDArray[np.uint32], NDArray[np.intp]]:
    """The same of one text, slice by slice, so that a long text is never held whole in two forms."""
    points, size = np.empty(len(text) + 1 + _BLOCK, np.uint32), 0
    table = mapping().table
    start = 0
    while start < len(text):
        stop = start + _SLICE
        # End the slice before a character that cannot combine with its predecessor.
        while stop < len(text) and table[min(ord(text[stop]), table.size - 1)] >= DROPPED:
            stop += 1
        part, ahead = text[start:stop], max(0, len(text) - stop) + 1
        raw = _utf16(part.encode("utf-16-le", "surrogatepass"))
        points, reached = _mapped(raw, points, size, ahead, mapping())
        if reached < 0:
            normal = utf32(reference(part))
            reached = size + normal.size
            if reached + ahead + _BLOCK > points.size:
                points = np.concatenate((points[:size], np.empty(normal.size + ahead + _BLOCK, np.uint32)))
            points[size:reached] = normal
        start, size = stop, reached
    points[size] = 0
    return points[: size + 1], np.array([0, size + 1], np.intp)


def encoded(texts: Points) -> list[NDArray[np.uint8]]:
    """Each text in UTF-8."""
    if texts.points.dtype == np.uint8:
        ascii_text = texts.points.astype(np.uint8, copy=False)
        return [ascii_text[start : end - 1] for start, end in pairwise(texts.bounds.tolist())]
    content, ends = utf8(texts.points.astype(np.uint32, copy=False), texts.bounds)
    return [content[start:end] for start, end in pairwise(ends.tolist())]


def _utf16(encoded: bytes) -> NDArray[np.uint16]:
    # Python encodes UTF-16 three times as fast as UTF-32.
    return np.frombuffer(encoded, "<u2").astype(np.uint16, copy=False)


@compiled
def _mapped(
    raw: NDArray[np.uint16], points: NDArray[np.uint32], size: int, ahead: int, mapping: Mapping
) -> tuple[NDArray[np.uint32], int]:
    """Append the normalised form of `raw` (UTF-16) to `points`, of which `size` are used.

    Grows the array if needed, keeping room for `ahead` further characters. Returns the array and its new
    size, or the size -1 if a character depends on its neighbours.
    """
    table = mapping.table
    i = 0
    while i < len(raw):
        end = min(i + _BLOCK, len(raw))
        highest = np.uint32(0)
        for place in range(end - i):
            mapped = table[raw[i + place]]
            points[size + place] = mapped
            highest = max(highest, mapped)
        if highest < DROPPED:
            size += end - i
            i = end
            continue
        while i < end:
            point = np.int64(raw[i])
            i += 1
            if 0xD800 <= point < 0xDC00 and i < len(raw) and 0xDC00 <= raw[i] < 0xE000:
                point = 0x1_0000 + ((point & 0x3FF) << 10) + (np.int64(raw[i]) & 0x3FF)
                i += 1
            mapped = table[point if point < len(table) else len(table) - 1]
            if mapped < DROPPED:
                points[size] = mapped
                size += 1
            elif mapped == SPECIAL:
                return points, -1
            elif mapped >= EXPANDED:
                which = np.int64(mapped) - EXPANDED
                first, last = mapping.bounds[which], mapping.bounds[which + 1]
                if size + last - first + len(raw) - i + ahead + _BLOCK > len(points):
                    larger = np.empty(len(points) + len(points) // 4 + _LEAST_ROOM, np.uint32)
                    larger[:size] = points[:size]
                    points = larger
                for place in range(first, last):
                    points[size] = mapping.expansions[place]
                    size += 1
    return points, size


@compiled
def _mapped_texts(
    raw: NDArray[np.uint16], bounds: NDArray[np.intp], mapping: Mapping
) -> tuple[NDArray[np.uint32], NDArray[np.intp], NDArray[np.bool_]]:
    """Normalise texts in UTF-16. Returns the code points of all texts, their bounds (texts + 1,), and which
    texts need the standard library (texts,); these are left out of the code points."""
    texts = len(bounds) - 1
    points = np.empty(len(raw) + _BLOCK, np.uint32)
    ends = np.zeros(texts + 1, np.intp)
    special = np.zeros(texts, np.bool_)
    size = 0
    for text in range(texts):
        own = raw[bounds[text] : bounds[text + 1] - 1]
        points, reached = _mapped(own, points, size, len(raw) - bounds[text + 1] + 1, mapping)
        special[text] = reached < 0
        size = max(size, reached)
        points[size] = 0
        size += 1
        ends[text + 1] = size
    return points[:size], ends, special


@compiled
def _without_blanks(
    points: NDArray[np.uint32], bounds: NDArray[np.intp], unspaced: NDArray[np.bool_]
) -> NDArray[np.intp]:
    """Drop the spaces between two characters of scripts without spaces, in place. Returns the bounds of the
    texts (texts + 1,)."""
    ends = np.zeros(len(bounds), np.intp)
    size = 0
    for text in range(len(bounds) - 1):
        before = False
        blanks = 0
        for i in range(bounds[text], bounds[text + 1]):
            point = points[i]
            points[size] = point
            size += 1
            if point == SPACE:
                blanks += 1
                continue
            within = point < len(unspaced) and unspaced[point]
            if blanks and before and within:
                size -= blanks
                points[size - 1] = point
            before = within
            blanks = 0
        ends[text + 1] = size
    return ends


@compiled
def utf8(points: NDArray[np.uint32], bounds: NDArray[np.intp]) -> tuple[NDArray[np.uint8], NDArray[np.intp]]:
    """The texts in UTF-8, concatenated, and their bounds (texts + 1,)."""
    content = np.empty(4 * len(points), np.uint8)
    ends = np.zeros(len(bounds), np.intp)
    at = 0
    for text in range(len(bounds) - 1):
        for i in range(bounds[text], bounds[text + 1] - 1):
            point = np.int64(points[i])
            if point < 0x80:
                content[at] = point
                at += 1
            elif point < 0x800:
                content[at] = 0xC0 | point >> 6
                content[at + 1] = 0x80 | point & 0x3F
                at += 2
            elif point < 0x1_0000:
                content[at] = 0xE0 | point >> 12
                content[at + 1] = 0x80 | point >> 6 & 0x3F
                content[at + 2] = 0x80 | point & 0x3F
                at += 3
            else:
                content[at] = 0xF0 | point >> 18
                content[at + 1] = 0x80 | point >> 12 & 0x3F
                content[at + 2] = 0x80 | point >> 6 & 0x3F
                content[at + 3] = 0x80 | point & 0x3F
                at += 4
        ends[text + 1] = at
    return content[:at], ends

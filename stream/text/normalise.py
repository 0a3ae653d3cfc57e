"""Text normalisation before comparison: drop invisible characters, then NFKC, one letter for those that are
the same to readers (`stream.text.letters`), then casefold, and drop blanks within scripts without spaces.

Soft hyphens, joiners, zero-width spaces, directional marks and variation selectors come and go between copies
of a text. They are dropped, as in Unicode's NFKC_Casefold (UAX 44, Default_Ignorable_Code_Point).
Characters that the pinned version of Unicode does not know stay as they are (`stream.text.characters`).
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.text.characters import HAN, MARK, UNASSIGNED, UNSPACED, WORD, classes
from stream.text.letters import with_same_letters
from stream.text.points import SPACE
from stream.text.surrogates import replace_surrogates

DROPPED: Final = 0x11_0000
EXPANDED: Final = 0x20_0000
SPECIAL: Final = 0xFFFF_FFFF
_IGNORABLE: Final = (
    *((0xAD, 0xAE), (0x34F, 0x350), (0x61C, 0x61D), (0x115F, 0x1161), (0x17B4, 0x17B6), (0x180B, 0x1810)),
    *((0x200B, 0x2010), (0x202A, 0x202F), (0x2060, 0x2070), (0x3164, 0x3165), (0xFE00, 0xFE10)),
    *((0xFEFF, 0xFF00), (0xFFA0, 0xFFA1), (0xFFF0, 0xFFF9), (0x1BCA0, 0x1BCA4), (0x1D173, 0x1D17B)),
    (0xE0000, 0xE1000),
)
"""Half-open ranges of the code points with the property Default_Ignorable_Code_Point in Unicode 14."""
_JOINER: Final = "\u034f"
_IGNORED = re.compile("[" + "".join(f"{chr(start)}-{chr(end - 1)}" for start, end in _IGNORABLE) + "]")
MAX_MARKS: Final = 30
"""Longest run of combining marks that is reordered as a whole (UAX 15, Stream-Safe Text Format). Reordering
takes time quadratic in the length of the run."""
MAX_LIGATURES: Final = 65_536
"""Most occurrences in a text of the two ligatures that expand to 8 and 18 characters; the text is truncated
at the next one. No other character expands to more than 6."""
_LIGATURES: Final = re.compile("[\ufdfa\ufdfb]")
_WITH_MARKS: Final = ((0x300, 0x3400), (0xA000, 0xAC00), (0xFB00, 0x2_0000))
"""Ranges that contain every character whose decomposition begins with a combining mark."""
_TABLE_END: Final = 0x3_0000
"""No code point from here on changes; those that are assigned are unified Han and private use."""
_NONCHARACTER: Final = np.uint32(0xFFFF)
_BEGINS_WITH_MARK, _KEPT = 1, 2
_IDENTITY: Final = ((0x3400, 0x4DC0), (0x4E00, 0xA000), (0xAC00, 0xF900), (0x2_0000, 0x2_F800))
"""Unified Han, Hangul syllables and private use. They map to themselves, so `mapping` skips them."""


def normalise(text: str) -> str:
    """`text` without ignorable characters, NFKC-normalised (UAX 15), with one letter for those of
    `stream.text.letters`, casefolded, and without blanks between two characters of scripts without spaces.

    Lone surrogates become U+FFFD, as in browsers, so the result can always be encoded as UTF-8.
    """
    if text.isascii():
        return text.lower()
    text = bounded(text)
    if "…" in text:  # of the Chinese texts that need the slow path, six in seven need it for this alone
        text = text.replace("…", "...")
    if len(text) > 64:
        mapped = mapping().table.take(_points(text), mode="clip")
        highest = int(mapped.max())
        if highest <= DROPPED:
            if highest == DROPPED:
                mapped = mapped[mapped != DROPPED]
            return _without_blanks(_text(mapped))
    return reference(text)


def reference(text: str) -> str:
    """The reference implementation of `normalise`, by the standard library: 22 MB/s of Chinese against the
    179 MB/s of the table."""
    seen = _IGNORED.sub("", replace_surrogates(text))
    points = _points(seen)
    roles = _roles().take(points, mode="clip")
    kept = points[roles == _KEPT]
    if kept.size:
        # A noncharacter stands in for each, which neither changes nor combines in any version of Unicode.
        seen = _text(np.where(roles == _KEPT, _NONCHARACTER, points))
    safe = _stream_safe(seen, roles == _BEGINS_WITH_MARK)
    normal = with_same_letters(unicodedata.normalize("NFKC", safe).replace(_JOINER, "")).casefold()
    if kept.size:
        points = _points(normal).copy()
        points[points == _NONCHARACTER] = kept
        normal = _text(points)
    return _without_blanks(normal)


def _without_blanks(text: str) -> str:
    """`text` without the spaces (U+0020) between two characters that `is_unspaced`."""
    if " " not in text or text.isascii():
        return text
    points = _points(text)
    others = np.flatnonzero(points != SPACE)
    unspaced = is_unspaced()[points[others]]
    between = np.flatnonzero(unspaced[:-1] & unspaced[1:] & (np.diff(others) > 1))
    edges = np.zeros(points.size, np.int8)
    edges[others[between] + 1] = 1
    edges[others[between + 1]] -= 1
    return _text(points[np.cumsum(edges, dtype=np.int8) == 0])


@functools.cache
def is_unspaced() -> NDArray[np.bool_]:
    """Code point -> whether it is a letter, a number or a mark of a script that is written without spaces."""
    table = np.zeros(0x11_0000, np.bool_)
    for start, end in (*HAN, *UNSPACED):
        table[start:end] = np.isin(classes()[start:end], (WORD, MARK))
    return table


def bounded(text: str) -> str:
    """`text`, truncated before the first ligature beyond MAX_LIGATURES."""
    if "\ufdfa" not in text and "\ufdfb" not in text:
        return text
    ligature = next(islice(_LIGATURES.finditer(text), MAX_LIGATURES, None), None)
    return text[: ligature.start()] if ligature else text


def _stream_safe(text: str, is_mark: NDArray[np.bool_]) -> str:
    """`text` with a joiner inserted after every MAX_MARKS combining marks in a row. Marks are not reordered
    across a joiner. `is_mark` says which characters begin with a mark."""
    edges = np.flatnonzero(np.diff(is_mark, prepend=False, append=False))
    starts, ends = edges[::2], edges[1::2]
    parts, done = [], 0
    for run in np.flatnonzero(ends - starts > MAX_MARKS).tolist():
        for place in range(starts[run] + MAX_MARKS, ends[run], MAX_MARKS):
            parts.append(text[done:place])
            done = place
    return _JOINER.join([*parts, text[done:]])


@functools.cache
def _roles() -> NDArray[np.uint8]:
    """Code point -> _BEGINS_WITH_MARK if its decomposition does, _KEPT if it stays as it is in whatever
    version of Unicode, 0 for others. The last entry stands for all code points beyond the table."""
    unassigned = classes()[:_TABLE_END] == UNASSIGNED
    table = np.append(np.where(unassigned, _KEPT, 0), _KEPT).astype(np.uint8)
    for start, end in _WITH_MARKS:
        for point in range(start, end):
            if not unassigned[point] and unicodedata.combining(unicodedata.normalize("NFKD", chr(point))[0]):
                table[point] = _BEGINS_WITH_MARK
    return table


def _points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def _text(points: NDArray[np.uint32]) -> str:
    return points.astype("<u4", copy=False).tobytes().decode("utf-32-le")


class Mapping(NamedTuple):
    """The normalised form of each code point whose form does not depend on its neighbours.

    NFKC maps each code point on its own unless it may compose with, or be reordered after, its predecessor
    (UAX 15, quick check: ccc > 0 or NFC_QC=Maybe).
    """

    table: NDArray[np.uint32]
    """Code point -> its normalised form: another code point, DROPPED for nothing, EXPANDED + i for several
    code points, SPECIAL if it depends on the neighbours. The last entry stands for all code points beyond the
    table."""
    expansions: NDArray[np.uint32]
    """The forms of several code points, concatenated."""
    bounds: NDArray[np.int64]
    """Form i is `expansions[bounds[i] : bounds[i + 1]]`."""


@functools.cache
def mapping() -> Mapping:
    """The mapping, computed at the first call from the standard library's data of assigned characters."""
    table = np.arange(_TABLE_END + 1, dtype=np.uint32)
    assigned = _assigned_characters()
    second = _second_elements(assigned)
    expansions: list[str] = []
    for character in assigned:
        mapped = unicodedata.normalize("NFKC", character)
        folded = with_same_letters(mapped).casefold()
        if folded == character and character not in second and not unicodedata.combining(character):
            continue
        point = ord(character)
        if mapped[0] in second or any(map(unicodedata.combining, character + mapped)):
            table[point] = SPECIAL
        elif len(folded) < 2:
            table[point] = ord(folded) if folded else DROPPED
        elif unicodedata.normalize("NFKD", character)[0] in second:
            table[point] = SPECIAL
        else:
            table[point] = EXPANDED + len(expansions)
            expansions.append(folded)
    for start, end in _IGNORABLE:
        table[start:end] = DROPPED
    table[0xD800:0xE000] = SPECIAL
    table[_TABLE_END] = SPECIAL
    bounds = np.cumsum([0, *map(len, expansions)], dtype=np.int64)
    return Mapping(table, np.array(list(map(ord, "".join(expansions))), np.uint32), bounds)


def _assigned_characters() -> list[str]:
    """The assigned characters that may change under normalisation. Skipping the ranges that cannot saves
    0.1 s at start."""
    assigned = classes()[:_TABLE_END] != UNASSIGNED
    for start, end in _IDENTITY:
        assigned[start:end] = False
    return list(map(chr, np.flatnonzero(assigned).tolist()))


def _second_elements(characters: Iterable[str]) -> frozenset[str]:
    """The characters that may compose with their predecessor: second characters of canonical
    decompositions, and Hangul jamo."""
    elements = {chr(jamo) for jamo in range(0x1160, 0x1200)}
    for character in characters:
        parts = unicodedata.decomposition(character).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            elements.add(chr(int(parts[1], 16)))
    return frozenset(elements)

"""Normalised text -> words, tokens and Han characters.

A *word* is a maximal run of `\\w` characters. A *token* is a word, except that the Han runs inside words are
taken out and cut by a dictionary (`rjieba` or `jieba`). Words and tokens are UTF-8, ready to be hashed.
"""

from __future__ import annotations

import functools
import re
import sys
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.text.cutters import Segmenter, cutter

HAN: Final = (
    (0x3005, 0x3008),  # 々 〆 〇
    (0x3400, 0x4DC0),
    (0x4E00, 0xA000),
    (0xF900, 0xFB00),
    (0x2_0000, 0x3_23B0),
)
"""Half-open ranges of code points that count as Han characters."""

_SPACE: Final = 0x20
_OTHER, _ASCII, _HAN, _WIDE = 0, 1, 2, 3  # kinds of characters: all but _OTHER are `\w`
_ASCII_WORDS: Final = bytes(point if re.match(rb"\w", bytes([point])) else _SPACE for point in range(256))


class Segments(NamedTuple):
    """A text, cut."""

    tokens: list[bytes]
    """First the tokens without Han characters, then the Han words, each in text order."""
    han: NDArray[np.uint32]
    """The Han characters in order, as code points (n,); all else dropped."""


def words(text: str) -> list[bytes]:
    r"""The `\w+` runs of `text`, in order; Han runs are not cut."""
    if text.isascii():
        return text.encode().translate(_ASCII_WORDS).split()
    points, kinds = _classified(text)
    return _joined(points, kinds != _OTHER).encode().split()


def segment(text: str, segmenter: Segmenter, dictionary: str = "") -> Segments:
    """The tokens and the Han characters of `text`.

    All Han runs of the text are cut by one call; the dictionary, with the words of a user's `dictionary`
    file, is loaded at the first.
    """
    if text.isascii():
        return Segments(words(text), np.empty(0, np.uint32))
    points, kinds = _classified(text)
    if int(kinds.max()) < _WIDE:  # words without Han characters are ASCII, of one byte a character
        found = text.encode().translate(_ASCII_WORDS).split()
    else:
        found = _joined(points, (kinds == _ASCII) | (kinds == _WIDE)).encode().split()
    is_han = kinds == _HAN
    han = points.compress(is_han)
    if han.size:
        found += " ".join(cutter(segmenter, dictionary)(_joined(points, is_han))).encode().split()
    return Segments(found, han)


def warm(segmenter: Segmenter, dictionary: str = "") -> None:
    """Load tables and dictionary now (0.1-1 s), so that the first page does not pay for it."""
    segment("预热。", segmenter, dictionary)


def _classified(text: str) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.uint32, copy=False)
    return points, _kinds().take(points)


def _joined(points: NDArray[np.uint32], keep: NDArray[np.bool_]) -> str:
    """The kept characters as runs between single spaces: a space stands only where a run ends."""
    spaced = np.where(keep, points, np.uint32(_SPACE))
    places = keep.copy()
    places[1:] |= keep[:-1]
    return spaced.compress(places).astype("<u4", copy=False).tobytes().decode("utf-32-le")


@functools.cache
def _kinds() -> NDArray[np.uint8]:
    """Code point -> its kind, `\\w` being what this Python's own `re` says."""
    kinds = np.zeros(sys.maxunicode + 1, np.uint8)
    for run in re.finditer(r"\w+", "".join(map(chr, range(sys.maxunicode + 1)))):
        kinds[run.start() : run.end()] = _WIDE
    for start, end in HAN:
        part = kinds[start:end]
        part[part == _WIDE] = _HAN
    ascii_part = kinds[:0x80]
    ascii_part[ascii_part == _WIDE] = _ASCII
    return kinds

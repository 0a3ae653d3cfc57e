"""Segmentation of a normalised text into words, tokens and Han characters.

A *word* is a maximal run of `\\w` characters (`stream.text.characters`). A *token* is a word together with
its combining marks, which are not `\\w`. Two kinds of runs become several tokens instead:

- Han runs are cut into words by a dictionary (`rjieba` or `jieba`);
- runs of other scripts written without spaces (kana, Thai, Lao, Khmer and others) become character 3-grams.

Words and tokens are UTF-8, ready to be hashed.

Measured on pages of a Khmer help system, at a limit of 12 bits between fingerprints, with pairs edited to
0.8 <= J < 1 and pairs of different pages. Without marks, so that single letters were words, 32 % of the
different pairs were within the limit. With marks and whole runs as tokens, 13 % of the edited pairs were
beyond it. With 3-grams, 0.1 % of the edited pairs are beyond it and 0.03 % of the different pairs within.
"""

from __future__ import annotations

import functools
import re
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.text.characters import classes
from stream.text.cutters import Segmenter, cutter

HAN: Final = (
    (0x3005, 0x3008),  # 々 〆 〇
    (0x3400, 0x4DC0),
    (0x4E00, 0xA000),
    (0xF900, 0xFB00),
    (0x2_0000, 0x3_23B0),
)
"""Half-open ranges of code points that count as Han characters."""
UNSPACED: Final = (
    (0x0E00, 0x0F00),  # Thai, Lao
    (0x1000, 0x10A0),  # Myanmar
    (0x1780, 0x1800),  # Khmer
    (0x1950, 0x19E0),  # Tai Le, New Tai Lue
    (0x1A20, 0x1AB0),  # Tai Tham
    (0x3041, 0x3100),  # hiragana, katakana
    (0x31F0, 0x3200),  # katakana extensions
    (0xA9E0, 0xAA00),  # Myanmar extensions
    (0xAA60, 0xAAE0),  # Myanmar extensions, Tai Viet
    (0x11700, 0x11750),  # Ahom
    (0x1AFF0, 0x1B170),  # kana extensions
)
"""Half-open ranges of the other scripts that are written without spaces: kana, and the scripts of line
breaking class SA (UAX 14). Only their word characters and marks count."""
GRAM: Final = 3
"""Length in characters of the n-grams of unspaced scripts."""

SPACE: Final = 0x20
NO_WORD, ASCII, HAN_CHARACTER, WIDE, UNSPACED_CHARACTER, MARK = range(
    6
)  # kinds of characters: the middle four are `\w`
_ASCII_WORDS: Final = bytes(point if re.match(rb"\w", bytes([point])) else SPACE for point in range(256))


class Segments(NamedTuple):
    """The tokens and Han characters of a text."""

    tokens: list[bytes]
    """First words, then 3-grams of unspaced scripts, then Han words, each in text order."""
    han: NDArray[np.uint32]
    """Code points of the text's Han characters, in order (n,)."""


def words(text: str) -> list[bytes]:
    r"""The `\w+` runs of `text`, in order. Han runs are not cut."""
    if text.isascii():
        return text.encode().translate(_ASCII_WORDS).split()
    points, kinds = _classified(text)
    return _joined(points, (kinds != NO_WORD) & (kinds != MARK)).encode().split()


def segment(text: str, segmenter: Segmenter, dictionary: str = "") -> Segments:
    """The tokens and the Han characters of `text`.

    The segmenter is called once for all Han runs of the text. The first call loads its dictionary, extended
    by the user dictionary at the path `dictionary`.
    """
    if text.isascii():
        return Segments(words(text), np.empty(0, np.uint32))
    points, kinds = _classified(text)
    highest = int(kinds.max())
    if highest < WIDE:  # all words other than Han runs are ASCII
        found = text.encode().translate(_ASCII_WORDS).split()
    else:
        if highest == MARK:
            kinds = as_their_bases(kinds)
        found = _joined(points, (kinds == ASCII) | (kinds == WIDE)).encode().split()
        if highest >= UNSPACED_CHARACTER:
            found += _grams(_joined(points, kinds == UNSPACED_CHARACTER))
    is_han = kinds == HAN_CHARACTER
    han = points.compress(is_han)
    if han.size:
        found += " ".join(cutter(segmenter, dictionary)(_joined(points, is_han))).encode().split()
    return Segments(found, han)


def _classified(text: str) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.uint32, copy=False)
    return points, kinds_of_characters().take(points)


def _joined(points: NDArray[np.uint32], keep: NDArray[np.bool_]) -> str:
    """The kept characters, with a single space after each run of them."""
    spaced = np.where(keep, points, np.uint32(SPACE))
    places = keep.copy()
    places[1:] |= keep[:-1]
    return spaced.compress(places).astype("<u4", copy=False).tobytes().decode("utf-32-le")


def as_their_bases(kinds: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The kinds with each mark assigned the kind of its base character. A mark that follows a Han character
    or no word character becomes NO_WORD."""
    marks = kinds == MARK
    bases = np.maximum.accumulate(np.where(marks, 0, np.arange(kinds.size)))
    found = kinds.take(bases)
    found[marks & ((found == HAN_CHARACTER) | (found == MARK))] = NO_WORD
    return found


def _grams(runs: str) -> list[bytes]:
    """The GRAM-character n-grams of space-separated runs. A shorter run is kept whole."""
    grams: list[str] = []
    for run in runs.split():
        grams += (run[place : place + GRAM] for place in range(max(1, len(run) - GRAM + 1)))
    return [gram.encode() for gram in grams]


@functools.cache
def kinds_of_characters() -> NDArray[np.uint8]:
    """Code point -> its kind."""
    kinds = np.array([NO_WORD, NO_WORD, WIDE, MARK], np.uint8).take(classes())
    for ranges, kind in ((HAN, HAN_CHARACTER), (UNSPACED, UNSPACED_CHARACTER)):
        for start, end in ranges:
            part = kinds[start:end]
            part[part == WIDE] = kind
    ascii_part = kinds[:0x80]
    ascii_part[ascii_part == WIDE] = ASCII
    return kinds

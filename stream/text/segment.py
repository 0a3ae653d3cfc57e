"""Segmentation of a normalised text into words, tokens and units.

A *word* is a maximal run of `\\w` characters and their combining marks (`stream.text.characters`). *Tokens*,
the features of SimHash, and *units*, of which shingles are made, are cut from the same runs of characters:

| run of | tokens | units |
|---|---|---|
| Han characters | words by a dictionary (`rjieba` or `jieba`) | characters |
| others without spaces (kana, Thai, Khmer ...) | 3-grams of characters | characters, with their marks |
| any other script, and digits | the run | the run |

So a character is in both or in neither. In neither are characters that are no `\\w`, such as punctuation and
emoji, and marks that follow one of these or a Han character. All three are UTF-8, ready to be hashed.

Measured on pages of a Khmer help system, at a limit of 12 bits between fingerprints, with pairs edited to
0.8 <= J < 1 and pairs of different pages. Without marks, so that single letters were words, 32 % of the
different pairs were within the limit. With marks and whole runs as tokens, 13 % of the edited pairs were
beyond it. With 3-grams, 0.1 % of the edited pairs are beyond it and 0.03 % of the different pairs within.
"""

from __future__ import annotations

import functools
import re
from typing import Final

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
    (0x1B00, 0x1B80),  # Balinese
    (0x3021, 0x302A),  # Hangzhou numerals
    (0x3031, 0x3040),  # repeat marks of kana and Han
    (0x3041, 0x3130),  # hiragana, katakana, Bopomofo
    (0x31A0, 0x31C0),  # Bopomofo Extended
    (0x31F0, 0x3200),  # Katakana Phonetic Extensions
    (0xA000, 0xA4D0),  # Yi
    (0xA980, 0xAA00),  # Javanese, Myanmar Extended-B
    (0xAA60, 0xAAE0),  # Myanmar Extended-A, Tai Viet
    (0x11700, 0x11750),  # Ahom
    (0x16FE0, 0x18D80),  # Tangut, Khitan
    (0x1AFF0, 0x1B300),  # kana extensions, Nushu
)
"""Half-open ranges of the other scripts that are written without spaces, by their blocks: those of the line
breaking classes SA, ID and CJ (UAX 14), Bopomofo, Balinese and Javanese. Only their word characters and marks
count. Tibetan is not among them: its tsheg, which is punctuation, separates syllables."""
GRAM: Final = 3
"""Length in characters of the n-grams of unspaced scripts."""

SPACE: Final = 0x20
NO_WORD, ASCII, HAN_CHARACTER, WIDE, UNSPACED_CHARACTER, MARK = range(
    6
)  # kinds of characters: the middle four are `\w`
_ASCII_WORDS: Final = bytes(point if re.match(rb"\w", bytes([point])) else SPACE for point in range(256))


def words(text: str) -> list[bytes]:
    """The words of `text`, in order. Scripts written without spaces are not cut."""
    if text.isascii():
        return text.encode().translate(_ASCII_WORDS).split()
    points, kinds = _classified(text)
    return _joined(points, as_their_bases(kinds) != NO_WORD).encode().split()


def units(text: str) -> list[bytes]:
    """The units of `text`, in order."""
    if text.isascii():
        return words(text)
    points, kinds = _classified(text)
    bases = as_their_bases(kinds)
    starts, ends = unit_ranges(kinds, bases)
    characters = points.astype("<u4", copy=False)
    return [
        characters[start:end].tobytes().decode("utf-32-le").encode()
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]


def unit_ranges(
    kinds: NDArray[np.uint8], bases: NDArray[np.uint8]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Starts and ends of the units in text order, from the kinds of the characters (n,) and `as_their_bases`
    of them."""
    within = bases != NO_WORD
    spaced = (bases == ASCII) | (bases == WIDE)
    # Each character of an unspaced script begins a unit, and so does the first one of another word.
    begins = within & ~spaced & (kinds != MARK)
    begins |= spaced & ~_shifted(spaced)
    starts = np.flatnonzero(begins)
    # A unit ends where the next one begins, or before that at a character that is in none.
    edges = np.flatnonzero(begins | ~within)
    edges = np.append(edges, kinds.size)
    return starts, edges[np.searchsorted(edges, starts, "right")]


def _shifted(flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Each character's flag moved to the next character."""
    moved = np.zeros_like(flags)
    moved[1:] = flags[:-1]
    return moved


def segment(text: str, segmenter: Segmenter, dictionary: str = "") -> list[bytes]:
    """The tokens of `text`: words, then 3-grams of unspaced scripts, then Han words, each in text order.

    The segmenter is called once for all Han runs of the text. The first call loads its dictionary, extended
    by the user dictionary at the path `dictionary`.
    """
    if text.isascii():
        return words(text)
    points, kinds = _classified(text)
    highest = int(kinds.max())
    if highest < WIDE:  # all words other than Han runs are ASCII
        tokens = text.encode().translate(_ASCII_WORDS).split()
    else:
        if highest == MARK:
            kinds = as_their_bases(kinds)
        tokens = _joined(points, (kinds == ASCII) | (kinds == WIDE)).encode().split()
        if highest >= UNSPACED_CHARACTER:
            tokens += _grams(_joined(points, kinds == UNSPACED_CHARACTER))
    is_han = kinds == HAN_CHARACTER
    if is_han.any():
        tokens += " ".join(cutter(segmenter, dictionary)(_joined(points, is_han))).encode().split()
    return tokens


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
    resolved = kinds.take(bases)
    resolved[marks & ((resolved == HAN_CHARACTER) | (resolved == MARK))] = NO_WORD
    return resolved


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

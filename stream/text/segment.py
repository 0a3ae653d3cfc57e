"""Normalised text -> words, tokens and Han characters.

A *word* is a maximal run of `\\w` characters. A *token* is a word, except that the Han runs inside words are
taken out and cut by a dictionary (`rjieba` or `jieba`). Words and tokens are UTF-8, ready to be hashed.
"""

from __future__ import annotations

import functools
import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Cut = Callable[[str], Iterable[str]]

HAN: Final = (
    (0x3005, 0x3008),  # 々 〆 〇
    (0x3400, 0x4DC0),
    (0x4E00, 0xA000),
    (0xF900, 0xFB00),
    (0x2_0000, 0x3_23B0),
)
"""Half-open ranges of code points that count as Han characters."""

_SPACE: Final = 0x20
_OTHER, _WORD, _HAN = 0, 1, 2
_ASCII_WORDS: Final = bytes(point if re.match(rb"\w", bytes([point])) else _SPACE for point in range(256))


def words(text: str) -> list[bytes]:
    r"""The `\w+` runs of `text`, in order; Han runs are not cut."""
    if text.isascii():
        return text.encode().translate(_ASCII_WORDS).split()
    points, kinds = _classified(text)
    return _joined(points, kinds != _OTHER).encode().split()


def han(text: str) -> NDArray[np.uint32]:
    """The Han characters of `text` in order, as code points (n,); all else dropped."""
    if text.isascii():
        return np.empty(0, np.uint32)
    points, kinds = _classified(text)
    found: NDArray[np.uint32] = points[kinds == _HAN]
    return found


def tokens(text: str, segmenter: Literal["rjieba", "jieba"]) -> list[bytes]:
    """The tokens of `text`: first those without Han characters, then the Han words, each in text order.

    All Han runs of the text are cut by one call; the dictionary is loaded at the first.
    """
    if text.isascii():
        return text.encode().translate(_ASCII_WORDS).split()
    points, kinds = _classified(text)
    found = _joined(points, kinds == _WORD).encode().split()
    is_han = kinds == _HAN
    if is_han.any():
        found += " ".join(_cutter(segmenter)(_joined(points, is_han))).encode().split()
    return found


def warm(segmenter: Literal["rjieba", "jieba"]) -> None:
    """Load tables and dictionary now (0.1-1 s), so that the first page does not pay for it."""
    tokens("预热。", segmenter)


def _classified(text: str) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.uint32, copy=False)
    return points, _kinds().take(points)


def _joined(points: NDArray[np.uint32], keep: NDArray[np.bool_]) -> str:
    """The kept characters as runs between single spaces: a space stands only where a run ends."""
    after = np.empty_like(keep)
    after[0] = False
    after[1:] = keep[:-1]
    spaced = np.where(keep, points, np.uint32(_SPACE))
    return spaced[keep | after].astype("<u4", copy=False).tobytes().decode("utf-32-le")


@functools.cache
def _kinds() -> NDArray[np.uint8]:
    """Code point -> _OTHER, _WORD (`\\w` but not Han) or _HAN, by this Python's own `re`."""
    kinds = np.zeros(sys.maxunicode + 1, np.uint8)
    for run in re.finditer(r"\w+", "".join(map(chr, range(sys.maxunicode + 1)))):
        kinds[run.start() : run.end()] = _WORD
    for start, end in HAN:
        part = kinds[start:end]
        part[part == _WORD] = _HAN
    return kinds


@functools.cache
def _cutter(segmenter: Literal["rjieba", "jieba"]) -> Cut:
    if segmenter == "rjieba":
        import rjieba

        own = rjieba.Jieba()  # the module's shared one may have had words added to it
        cut: Cut = own.cut
        return cut
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jieba's source has invalid escapes
        import jieba
    jieba.setLogLevel(logging.WARNING)
    tokenizer = jieba.Tokenizer()
    return lambda runs: tokenizer.cut(runs, HMM=True)

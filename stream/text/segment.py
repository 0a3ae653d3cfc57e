"""Segmentation of a normalised text into words, tokens and units.

A *word* is a maximal run of `\\w` characters and their combining marks (`stream.text.characters`). *Tokens*,
the features of SimHash, and *units*, of which shingles are made, are cut from the same runs of characters:

| run of | tokens | units |
|---|---|---|
| Han characters | words by a dictionary (`rjieba` or `jieba`) | characters |
| others without spaces (kana, Thai, Khmer ...) | 3-grams of characters | characters, with their marks |
| any other script, and digits | the run | the run |

All are found for a batch of texts at once by NumPy, as ranges of one array of code points: for a single page,
whose command need not import the compiler, and for user dictionaries and `jieba`. With rjieba's own
dictionary, `stream.fingerprint.tokens_compiled` cuts and hashes many texts in a compiled loop, in a sixth of
the time.

So a character is in both or in neither. In neither are characters that are no `\\w`, such as punctuation and
emoji, and marks that follow one of these or a Han character. All three are UTF-8, ready to be hashed.

Measured on pages of a Khmer help system, at a limit of 12 bits between fingerprints, with pairs edited to
0.8 <= J < 1 and pairs of different pages. Without marks, so that single letters were words, 32 % of the
different pairs were within the limit. With marks and whole runs as tokens, 13 % of the edited pairs were
beyond it. With 3-grams, 0.1 % of the edited pairs are beyond it and 0.03 % of the different pairs within.
"""

from __future__ import annotations

import functools
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.text.characters import HAN, UNSPACED, classes
from stream.text.han_cutters import Cut, Segmenter, cutter
from stream.text.points import SPACE, Points, points_of

GRAM: Final = 3
"""Length in characters of the n-grams of unspaced scripts."""

NO_WORD, ASCII, HAN_CHARACTER, WIDE, UNSPACED_CHARACTER, MARK = range(
    6
)  # kinds of characters: the middle four are `\w`
_SORTS: Final = np.array([0, 1, HAN_CHARACTER, 1, UNSPACED_CHARACTER, 0], np.uint8)
"""Kind of character -> class of piece; characters of one class in a row form one piece."""
_ORDER: Final = np.array([0, 0, 2, 0, 1, 1], np.uint8)
"""Kind of a token's first character -> place in the order of `segment`. Only n-grams begin with a mark."""


class Pieces(NamedTuple):
    """The tokens of a batch. Text i has the tokens `token_bounds[i]` to `token_bounds[i + 1]`."""

    starts: NDArray[np.intp]
    """Start of each token in the code points (n,), in text order."""
    ends: NDArray[np.intp]
    """End of each token, exclusive (n,)."""
    token_bounds: NDArray[np.intp]
    """(texts + 1,)"""
    unit_starts: NDArray[np.intp]
    """Start of each unit in the code points (u,), in text order."""
    unit_ends: NDArray[np.intp]
    """End of each unit, exclusive (u,)."""
    unit_bounds: NDArray[np.intp]
    """(texts + 1,)"""


def pieces(texts: Points, segmenter: Segmenter, dictionary: str = "") -> Pieces:
    """The tokens and units of `texts`. The segmenter is called once per text, with all its Han runs."""
    points, bounds = texts
    own_kinds = kinds_of_characters().take(points)
    kinds = as_their_bases(own_kinds)
    # A piece is a run of word characters of one class: Han, unspaced or other ...
    sorts = _SORTS.take(kinds)
    edges = np.empty(sorts.size, np.bool_)
    edges[:1] = True
    np.not_equal(sorts[1:], sorts[:-1], out=edges[1:])
    places = np.flatnonzero(kinds == HAN_CHARACTER) if points.itemsize > 1 else np.empty(0, np.intp)
    if places.size:  # ... and the segmenter cuts Han runs further.
        han, han_bounds = points.take(places), np.searchsorted(places, bounds)
        edges[places] = _first_of_words(han, places, han_bounds.tolist(), cutter(segmenter, dictionary))
    at = np.flatnonzero(edges)
    kept = sorts[at] != NO_WORD
    starts = at[kept]
    # A piece ends at the next edge; the final NUL ends the last one.
    ends = np.concatenate((at[1:], [sorts.size]))[kept]
    if (sorts == UNSPACED_CHARACTER).any():
        starts, ends = _with_grams(starts, ends, sorts)
    unit_starts, unit_ends = unit_ranges(own_kinds, kinds)
    unit_bounds = np.searchsorted(unit_starts, bounds)
    return Pieces(starts, ends, np.searchsorted(starts, bounds), unit_starts, unit_ends, unit_bounds)


def segment(text: str, segmenter: Segmenter, dictionary: str = "") -> list[bytes]:
    """The tokens of `text`: words, then 3-grams of unspaced scripts, then Han words, each in text order."""
    return tokens_of(text, pieces(points_of([text]), segmenter, dictionary))


def tokens_of(text: str, pieces: Pieces) -> list[bytes]:
    """The tokens of `text` in the order of `segment`, from its pieces."""
    begins = points_of([text]).points[pieces.starts]
    order = np.argsort(_ORDER.take(kinds_of_characters().take(begins)), kind="stable")
    return _parts(text, pieces.starts[order], pieces.ends[order])


def units(text: str) -> list[bytes]:
    """The units of `text`, in order."""
    kinds = kinds_of_characters().take(points_of([text]).points)
    return _parts(text, *unit_ranges(kinds, as_their_bases(kinds)))


def words(text: str) -> list[bytes]:
    """The words of `text`, in order. Scripts written without spaces are not cut."""
    kinds = as_their_bases(kinds_of_characters().take(points_of([text]).points))
    edges = np.flatnonzero(np.diff(kinds != NO_WORD, prepend=False))  # the final NUL ends the last word
    return _parts(text, edges[::2], edges[1::2])


def _parts(text: str, starts: NDArray[np.intp], ends: NDArray[np.intp]) -> list[bytes]:
    """These ranges of `text` in UTF-8."""
    return [text[start:end].encode() for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def unit_ranges(
    kinds: NDArray[np.uint8], bases: NDArray[np.uint8]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Starts and ends of the units in text order, from the kinds of the characters (n,) and `as_their_bases`
    of them."""
    within = bases != NO_WORD
    spaced = (bases == ASCII) | (bases == WIDE)
    # Each character of an unspaced script begins a unit, and so does the first one of another word.
    begins = within & ~spaced & (kinds != MARK)
    begins |= np.diff(spaced, prepend=False) & spaced
    starts = np.flatnonzero(begins)
    # A unit ends where the next one begins, or before that at a character that is in none.
    edges = np.flatnonzero(begins | ~within)
    edges = np.append(edges, kinds.size)
    return starts, edges[np.searchsorted(edges, starts, "right")]


def as_their_bases(kinds: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The kinds with each mark assigned the kind of its base character. A mark that follows a Han character
    or no word character becomes NO_WORD."""
    marks = kinds == MARK
    bases = np.maximum.accumulate(np.where(marks, 0, np.arange(kinds.size)))
    resolved = kinds.take(bases)
    resolved[marks & ((resolved == HAN_CHARACTER) | (resolved == MARK))] = NO_WORD
    return resolved


def _with_grams(
    starts: NDArray[np.intp], ends: NDArray[np.intp], sorts: NDArray[np.uint8]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The pieces with each unspaced run replaced by its GRAM-character n-grams."""
    unspaced = sorts[starts] == UNSPACED_CHARACTER
    counts = np.where(unspaced, np.maximum(1, ends - starts - GRAM + 1), 1)
    first = np.cumsum(counts) - counts
    begins = np.repeat(starts - first, counts) + np.arange(int(counts.sum()))
    stops = np.repeat(ends, counts)
    return begins, np.where(np.repeat(unspaced, counts), np.minimum(stops, begins + GRAM), stops)


def _first_of_words(
    han: NDArray[np.uint8] | NDArray[np.uint32],
    places: NDArray[np.intp],
    bounds: list[int],
    cut: Cut,
) -> NDArray[np.bool_]:
    """Whether a word starts at each Han character (h,). `places` are their positions in the texts."""
    # A space separates the runs, so that no word spans two of them.
    at = np.cumsum(np.diff(places, prepend=places[0]) > 1, dtype=np.intp)
    at += np.arange(places.size)
    spaced = np.full(int(at[-1]) + 1, SPACE, "<u4")
    spaced[at] = han
    runs = spaced.tobytes().decode("utf-32-le")
    firsts = []
    for start, end in pairwise(bounds):
        if start < end:
            # One text at a time: the words' memory is reused while still in the cache (30 % faster).
            words = cut(runs[at[start] : at[end - 1] + 1])
            gaps = np.frombuffer(" ".join(("", *words)).encode("utf-32-le"), "<u4") == SPACE
            firsts.append(gaps[:-1][~gaps[1:]])
    return np.concatenate(firsts)


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

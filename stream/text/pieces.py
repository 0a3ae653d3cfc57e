"""Normalised texts -> the places of their tokens, for a whole batch at once and without an object a token.

The same tokens as `stream.text.segment`, as ranges of one array of code points. `stream.fingerprint.scan`
does the same with rjieba in a compiled loop.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.text.cutters import Cut, Segmenter, cutter
from stream.text.points import Points
from stream.text.segment import (
    GRAM,
    HAN_CHARACTER,
    MARK,
    NO_WORD,
    SPACE,
    UNSPACED_CHARACTER,
    WIDE,
    as_their_bases,
    kinds_of_characters,
)

_SORTS: Final = np.array([0, 1, HAN_CHARACTER, 1, UNSPACED_CHARACTER, 0], np.uint8)
"""Kind of character -> sort of piece."""


class Pieces(NamedTuple):
    """Texts, cut. Text i has the tokens `token_bounds[i]` to `token_bounds[i + 1]`."""

    starts: NDArray[np.intp]
    """Where in the points each token starts (n,), in text order."""
    ends: NDArray[np.intp]
    """Where it ends (n,)."""
    token_bounds: NDArray[np.intp]
    """(texts + 1,)"""
    han: NDArray[np.uint32]
    """The Han characters of all texts in order (h,)."""
    han_bounds: NDArray[np.intp]
    """(texts + 1,)"""
    cut_further: NDArray[np.bool_]
    """Whether a text has tokens, other than Han words, that are not its words: 3-grams, marks (texts,)."""


def pieces(texts: Points, segmenter: Segmenter, dictionary: str = "") -> Pieces:
    """The tokens of `texts`. A text's Han runs are cut by one call."""
    points, bounds = texts
    kinds = kinds_of_characters().take(points)
    odd = kinds > WIDE if points.itemsize > 1 else kinds[:0]
    unusual = bool(odd.any())
    if unusual and int(kinds.max()) == MARK:
        kinds = as_their_bases(kinds)
    # A piece is a run of word characters of one sort: Han, unspaced or other ...
    sorts = _SORTS.take(kinds)
    edges = np.empty(sorts.size, np.bool_)
    edges[:1] = True
    np.not_equal(sorts[1:], sorts[:-1], out=edges[1:])
    places = np.flatnonzero(kinds == HAN_CHARACTER) if points.itemsize > 1 else np.empty(0, np.intp)
    han = points.take(places).astype(np.uint32, copy=False)
    han_bounds = np.searchsorted(places, bounds)
    if places.size:  # ... and the dictionary cuts Han runs further.
        edges[places] = _first_of_words(han, places, han_bounds.tolist(), cutter(segmenter, dictionary))
    at = np.flatnonzero(edges)
    kept = sorts[at] != NO_WORD
    starts = at[kept]
    # What follows a piece is an edge too; the last NUL ends the last one.
    ends = np.concatenate((at[1:], [sorts.size]))[kept]
    cut_further = np.zeros(bounds.size - 1, np.bool_)
    if unusual:
        cut_further = np.diff(np.concatenate(([0], np.cumsum(odd)))[bounds]) > 0
        starts, ends = _with_grams(starts, ends, sorts)
    return Pieces(starts, ends, np.searchsorted(starts, bounds), han, han_bounds, cut_further)


def _with_grams(
    starts: NDArray[np.intp], ends: NDArray[np.intp], sorts: NDArray[np.uint8]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The pieces with every GRAM characters of an unspaced run in place of the run."""
    unspaced = sorts[starts] == UNSPACED_CHARACTER
    counts = np.where(unspaced, np.maximum(1, ends - starts - GRAM + 1), 1)
    first = np.cumsum(counts) - counts
    begins = np.repeat(starts - first, counts) + np.arange(int(counts.sum()))
    stops = np.repeat(ends, counts)
    return begins, np.where(np.repeat(unspaced, counts), np.minimum(stops, begins + GRAM), stops)


def words_of(texts: Points, text: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    r"""Starts and ends in the points of the `\w+` runs of one text, Han runs not cut."""
    start, end = int(texts.bounds[text]), int(texts.bounds[text + 1])
    kinds = kinds_of_characters().take(texts.points[start:end])
    within = (kinds != NO_WORD) & (kinds != MARK)
    edges = np.flatnonzero(np.diff(within, prepend=False)) + start
    return edges[0::2], edges[1::2]


def _first_of_words(
    han: NDArray[np.uint32],
    places: NDArray[np.intp],
    bounds: list[int],
    cut: Cut,
) -> NDArray[np.bool_]:
    """Of each Han character, at `places` of the texts, whether a word starts there (h,)."""
    # Runs with single spaces between them, since a word must not reach over what stood there.
    at = np.cumsum(np.diff(places, prepend=places[0]) > 1, dtype=np.intp)
    at += np.arange(places.size)
    spaced = np.full(int(at[-1]) + 1, SPACE, "<u4")
    spaced[at] = han
    runs = spaced.tobytes().decode("utf-32-le")
    firsts = []
    for start, end in pairwise(bounds):
        if start < end:
            # A text at a time: the words' memory is used again while the cache still has it (30 % faster).
            words = cut(runs[at[start] : at[end - 1] + 1])
            gaps = np.frombuffer(" ".join(("", *words)).encode("utf-32-le"), "<u4") == SPACE
            firsts.append(gaps[:-1][~gaps[1:]])
    return np.concatenate(firsts)

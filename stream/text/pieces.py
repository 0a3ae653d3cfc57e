"""Tokenisation of a whole batch of normalised texts, without a Python object per token.

Finds the same tokens as `stream.text.segment`, as ranges of one array of code points. With the segmenter
rjieba, `stream.fingerprint.tokens_compiled` does the same in a compiled loop.
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
"""Kind of character -> class of piece; characters of one class in a row form one piece."""


class Pieces(NamedTuple):
    """The tokens of a batch. Text i has the tokens `token_bounds[i]` to `token_bounds[i + 1]`."""

    starts: NDArray[np.intp]
    """Start of each token in the code points (n,), in text order."""
    ends: NDArray[np.intp]
    """End of each token, exclusive (n,)."""
    token_bounds: NDArray[np.intp]
    """(texts + 1,)"""
    han: NDArray[np.uint32]
    """The Han characters of all texts in order (h,)."""
    han_bounds: NDArray[np.intp]
    """(texts + 1,)"""
    cut_further: NDArray[np.bool_]
    """Whether a text's tokens differ from its words in more than Han runs, by 3-grams or marks (texts,)."""


def pieces(texts: Points, segmenter: Segmenter, dictionary: str = "") -> Pieces:
    """Tokenise `texts`. The segmenter is called once per text, with all its Han runs."""
    points, bounds = texts
    kinds = kinds_of_characters().take(points)
    odd = kinds > WIDE if points.itemsize > 1 else kinds[:0]
    unusual = bool(odd.any())
    if unusual and int(kinds.max()) == MARK:
        kinds = as_their_bases(kinds)
    # A piece is a run of word characters of one class: Han, unspaced or other ...
    sorts = _SORTS.take(kinds)
    edges = np.empty(sorts.size, np.bool_)
    edges[:1] = True
    np.not_equal(sorts[1:], sorts[:-1], out=edges[1:])
    places = np.flatnonzero(kinds == HAN_CHARACTER) if points.itemsize > 1 else np.empty(0, np.intp)
    han = points.take(places).astype(np.uint32, copy=False)
    han_bounds = np.searchsorted(places, bounds)
    if places.size:  # ... and the segmenter cuts Han runs further.
        edges[places] = _first_of_words(han, places, han_bounds.tolist(), cutter(segmenter, dictionary))
    at = np.flatnonzero(edges)
    kept = sorts[at] != NO_WORD
    starts = at[kept]
    # A piece ends at the next edge; the final NUL ends the last one.
    ends = np.concatenate((at[1:], [sorts.size]))[kept]
    cut_further = np.zeros(bounds.size - 1, np.bool_)
    if unusual:
        cut_further = np.diff(np.concatenate(([0], np.cumsum(odd)))[bounds]) > 0
        starts, ends = _with_grams(starts, ends, sorts)
    return Pieces(starts, ends, np.searchsorted(starts, bounds), han, han_bounds, cut_further)


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


def words_of(texts: Points, text: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    r"""Starts and ends in the code points of the `\w+` runs of one text. Han runs are not cut."""
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

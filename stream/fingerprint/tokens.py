"""The tokens of a batch of texts as hashes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.hashes import HashKeys, hash_characters, hash_ranges
from stream.text.cutters import Segmenter
from stream.text.pieces import pieces
from stream.text.points import Points


class Tokens(NamedTuple):
    """The tokens of a batch. Text i has the tokens `bounds[i]` to `bounds[i + 1]`."""

    hashes: NDArray[np.uint64]
    """Hash of each token, in text order (n,)."""
    bounds: NDArray[np.intp]
    """(texts + 1,)"""
    han_units: NDArray[np.uint32]
    """The lowest 32 bits of the hash of each Han character, in text order (h,)."""
    han_bounds: NDArray[np.intp]
    """(texts + 1,)"""
    cut_further: NDArray[np.bool_]
    """Whether a text's tokens differ from its words in more than Han runs, by 3-grams or marks (texts,)."""


def plain_tokens(texts: Points, keys: HashKeys, segmenter: Segmenter, dictionary: str = "") -> Tokens:
    """The tokens of normalised texts, by NumPy and the segmenter."""
    found = pieces(texts, segmenter, dictionary)
    hashes = hash_ranges(texts.points, found.starts, found.ends, keys)
    units = hash_characters(found.han, keys).astype(np.uint32)
    return Tokens(hashes, found.token_bounds, units, found.han_bounds, found.cut_further)

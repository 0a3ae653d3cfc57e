"""The tokens and units of a batch of texts as hashes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.keyed_hashes import HashKeys, hash_ranges
from stream.text.han_cutters import Segmenter
from stream.text.points import Points
from stream.text.segment import pieces


class Tokens(NamedTuple):
    """The tokens and units of a batch. Text i has the tokens `bounds[i]` to `bounds[i + 1]`, and likewise the
    units."""

    hashes: NDArray[np.uint64]
    """Hash of each token, in text order (n,)."""
    bounds: NDArray[np.intp]
    """First token of each text, and the end of the last (texts + 1,)."""
    units: NDArray[np.uint32]
    """The lowest 32 bits of the hash of each unit, under keys of their own, in text order (u,)."""
    unit_bounds: NDArray[np.intp]
    """First unit of each text, and the end of the last (texts + 1,)."""


def plain_tokens(
    texts: Points, keys: HashKeys, unit_keys: HashKeys, segmenter: Segmenter, dictionary: str = ""
) -> Tokens:
    """Return the tokens and units of normalised texts, by NumPy and the segmenter."""
    ranges = pieces(texts, segmenter, dictionary)
    hashes = hash_ranges(texts.points, ranges.starts, ranges.ends, keys)
    units = hash_ranges(texts.points, ranges.unit_starts, ranges.unit_ends, unit_keys).astype(np.uint32)
    return Tokens(hashes, ranges.token_bounds, units, ranges.unit_bounds)

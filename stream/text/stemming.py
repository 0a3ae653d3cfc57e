"""Stemming by a Snowball algorithm (Porter, 2001): "crawled" and "crawling" are one feature."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

REMEMBERED: Final = 1 << 16
"""Stems cached. A stemmer in Python takes 10-20 us per word, and texts repeat their words."""


def refuse_unknown(algorithm: str) -> None:
    """Raise ValueError, which names the option, for an algorithm that Snowball does not have."""
    import snowballstemmer

    if algorithm not in snowballstemmer.algorithms():
        names = " ".join(sorted(snowballstemmer.algorithms()))
        raise ValueError(f"stem={algorithm}: unknown; known are {names}")


def stemmer(algorithm: str) -> Callable[[bytes], bytes]:
    """A function that stems tokens. Words of other scripts are unchanged."""
    import snowballstemmer

    stem = snowballstemmer.stemmer(algorithm).stemWord

    @functools.lru_cache(REMEMBERED)
    def stemmed(token: bytes) -> bytes:
        word: str = stem(token.decode())
        return word.encode()

    return stemmed

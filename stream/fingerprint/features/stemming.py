"""Words -> their stems, by a Snowball algorithm (Porter, 2001): "crawled" and "crawling" are one feature."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

REMEMBERED: Final = 1 << 16
"""Stems kept: a stemmer in Python takes 10-20 us a word, and texts repeat theirs."""


def refuse_unknown(algorithm: str) -> None:
    """Raises ValueError for an algorithm that Snowball does not have, naming the option."""
    import snowballstemmer

    if algorithm not in snowballstemmer.algorithms():
        known = " ".join(sorted(snowballstemmer.algorithms()))
        raise ValueError(f"stem={algorithm}: unknown; there are {known}")


def stemmer(algorithm: str) -> Callable[[bytes], bytes]:
    """A token's stem. Words of other scripts come out as they are."""
    import snowballstemmer

    stem = snowballstemmer.stemmer(algorithm).stemWord

    @functools.lru_cache(REMEMBERED)
    def stemmed(token: bytes) -> bytes:
        found: str = stem(token.decode())
        return found.encode()

    return stemmed

"""Tokens -> features -> weights -> hashes, put together for the scheme's options."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint import files
from stream.fingerprint.features import registry as features
from stream.fingerprint.features.stemming import stemmer
from stream.fingerprint.features.stop_words import stop_words
from stream.fingerprint.hashing import registry as hashing
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.weighting import weigher

_PLAIN = ("width", "features", "stop_words", "stem", "weights", "weight_cap", "hash")
"""Options that need a recipe unless they have their default."""


class Recipe:
    """What a scheme makes of tokens. Raises SettingsError when a file that the scheme names is not there or
    not the same any more."""

    def __init__(self, scheme: Scheme) -> None:
        if scheme.idf:
            files.refuse_changed("idf", scheme.idf, scheme.idf_digest)
        self._make = features.maker(scheme)
        self._weigh = weigher(scheme)
        self.hash = hashing.hasher(scheme)
        self._width = scheme.width
        self._stop_words = stop_words(scheme.stop_words)
        self._stem = stemmer(scheme.stem) if scheme.stem != "none" else None

    def features(self, text: str, tokens: list[bytes]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Hashes, (n,) or (n, 2) for 128 bits, and weights (n,) of the distinct features of a text."""
        names, weights = self.named(text, tokens)
        return self.hash(names, self._width), weights

    def named(self, text: str, tokens: list[bytes]) -> tuple[list[bytes], NDArray[np.int64]]:
        """The distinct features of a text and their weights (n,)."""
        if self._stop_words:
            tokens = [token for token in tokens if token not in self._stop_words]
        if self._stem is not None:
            tokens = list(map(self._stem, tokens))
        counts = self._make(text, tokens)
        return list(counts), self._weigh(counts)


def recipe_of(scheme: Scheme) -> Recipe | None:
    """None for the default way, which `fingerprinter` has in its own columns: nothing is loaded for it."""
    default = Scheme()
    plain = all(getattr(scheme, option) == getattr(default, option) for option in _PLAIN)
    return None if plain else Recipe(scheme)

"""Features, weights and hashes by the options of a scheme, wherever these differ from the defaults."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint import files
from stream.fingerprint.features import feature_methods as features
from stream.fingerprint.hashing import hash_functions as hashing
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.weight_options import weigher
from stream.text.stemming import stemmer
from stream.text.stop_words import stop_words

_PLAIN = ("width", "features", "stop_words", "stem", "weights", "weight_cap", "hash")
"""Options that need a Recipe unless they have their default values."""


class Recipe:
    """Computes the weighted, hashed features of a text by a scheme. Raises SettingsError if a file that the
    scheme names is missing or has changed."""

    def __init__(self, scheme: Scheme, seed: bytes) -> None:
        if scheme.idf:
            files.refuse_changed("idf", scheme.idf, scheme.idf_digest)
        self._make = features.maker(scheme)
        self._weigh = weigher(scheme)
        self.hash = hashing.hasher(scheme, seed)
        self._width = scheme.width
        self._stop_words = stop_words(scheme.stop_words)
        self._stem = stemmer(scheme.stem) if scheme.stem != "none" else None

    def features(self, text: str, tokens: list[bytes]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Return hashes, (n,) or (n, 2) for 128 bits, and weights (n,) of the distinct features of a text."""
        names, weights = self.weigh_features(text, tokens)
        return self.hash(names, self._width), weights

    def weigh_features(self, text: str, tokens: list[bytes]) -> tuple[list[bytes], NDArray[np.int64]]:
        """Return the distinct features of a text and their weights (n,)."""
        if self._stop_words:
            tokens = [token for token in tokens if token not in self._stop_words]
        if self._stem is not None:
            tokens = list(map(self._stem, tokens))
        counts = self._make(text, tokens)
        return list(counts), self._weigh(counts)


def recipe_of(scheme: Scheme, seed: bytes) -> Recipe | None:
    """Return the recipe of a scheme, or None for the default options, which have a faster path without it."""
    default = Scheme()
    plain = all(getattr(scheme, option) == getattr(default, option) for option in _PLAIN)
    return None if plain else Recipe(scheme, seed)

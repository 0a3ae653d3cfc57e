"""Words: the tokens themselves, regardless of their order."""

from __future__ import annotations

from collections import Counter

from stream.fingerprint.features.feature_methods import Maker
from stream.fingerprint.scheme import Scheme


def maker(_scheme: Scheme) -> Maker:
    """Counts tokens."""
    return lambda _text, tokens: Counter(tokens)

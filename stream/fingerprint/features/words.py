"""Words: the tokens themselves. The order of words is not looked at."""

from __future__ import annotations

from collections import Counter

from stream.fingerprint.features.registry import Maker
from stream.fingerprint.scheme import Scheme


def maker(_scheme: Scheme) -> Maker:
    """Counts tokens."""
    return lambda _text, tokens: Counter(tokens)

"""Word shingles: every run of `feature_length` tokens. Word order matters, and one changed word changes
`feature_length` features."""

from __future__ import annotations

from collections import Counter

from stream.fingerprint.features.feature_methods import Maker
from stream.fingerprint.scheme import Scheme


def maker(scheme: Scheme) -> Maker:
    """Counts shingles of tokens in the order of `segment`. Fewer tokens make a single feature."""
    length = scheme.feature_length

    def make(_text: str, tokens: list[bytes]) -> dict[bytes, int]:
        if not tokens:
            return {}
        places = range(max(1, len(tokens) - length + 1))
        return Counter(b" ".join(tokens[place : place + length]) for place in places)

    return make

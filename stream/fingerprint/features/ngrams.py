"""Character n-grams: every run of `feature_length` characters of the words, joined by single spaces (seed 000
has the fifteen 2-grams of "the cat sat on the mat"). They need no dictionary; an edit changes n features."""

from __future__ import annotations

from collections import Counter

from stream.fingerprint.features.feature_methods import Maker
from stream.fingerprint.scheme import Scheme
from stream.text.segment import words


def maker(scheme: Scheme) -> Maker:
    """Counts n-grams. A text shorter than that is a single feature."""
    length = scheme.feature_length

    def make(text: str, _tokens: list[bytes]) -> dict[bytes, int]:
        joined = b" ".join(words(text)).decode()
        if not joined:
            return {}
        places = range(max(1, len(joined) - length + 1))
        counts = Counter(joined[place : place + length] for place in places)
        return {gram.encode(): count for gram, count in counts.items()}

    return make

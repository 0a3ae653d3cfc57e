"""What the two keyword methods share: how many keywords, and scores as integers."""

from __future__ import annotations

from collections import Counter
from typing import Final

from stream.fingerprint.scheme import Scheme

SCORE_UNIT: Final = 1 << 20
"""Scores are below 1 and of a handful of words; as integers they keep six digits."""


def keyword_count(scheme: Scheme, tokens: int) -> int:
    """N: `keywords`, and one more for every `keyword_every` tokens of the text."""
    return scheme.keywords + (tokens // scheme.keyword_every if scheme.keyword_every else 0)


def chosen(scheme: Scheme, tags: list[tuple[str, float]], tokens: list[bytes]) -> dict[bytes, int]:
    """The keywords with their scores (`weights=score`), or with how often each is a token (at least once)."""
    if scheme.weights == "score":
        return {word.encode(): max(1, round(SCORE_UNIT * score)) for word, score in tags}
    counts = Counter(tokens)
    return {word.encode(): counts[word.encode()] or 1 for word, _ in tags}

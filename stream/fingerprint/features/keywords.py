"""Common parts of the keyword methods TF-IDF and TextRank: the number of keywords, and integer scores."""

from __future__ import annotations

from collections import Counter
from typing import Final

from stream.fingerprint.scheme import Scheme

SCORE_UNIT: Final = 1 << 20
"""Scale of integer scores. The scores of a few words, all below 1, keep six digits."""


def keyword_count(scheme: Scheme, tokens: int) -> int:
    """Return the number of keywords: `keywords`, plus one per `keyword_every` tokens of the text."""
    return scheme.keywords + (tokens // scheme.keyword_every if scheme.keyword_every else 0)


def choose_keywords(scheme: Scheme, tags: list[tuple[str, float]], tokens: list[bytes]) -> dict[bytes, int]:
    """Return the keywords with their scores (`weights=score`) or else their token counts, at least 1."""
    if scheme.weights == "score":
        return {word.encode(): max(1, round(SCORE_UNIT * score)) for word, score in tags}
    counts = Counter(tokens)
    return {word.encode(): counts[word.encode()] or 1 for word, _ in tags}

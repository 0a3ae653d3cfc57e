"""The N nouns and verbs ranked highest by TextRank, with jieba's extractor (seed 004): words within five of
each other vote for each other. A text without nouns and verbs in jieba's dictionary, such as an English one,
has no features."""

from __future__ import annotations

from typing import NamedTuple

from stream.fingerprint.features.feature_methods import Maker
from stream.fingerprint.features.keywords import choose_keywords, keyword_count
from stream.fingerprint.scheme import Scheme
from stream.text.han_cutters import analyse, tagger
from stream.text.stop_words import stop_words


class _Tagged(NamedTuple):
    """A word and its part of speech, under jieba's names."""

    word: str
    flag: str


class _Tagger:
    """Replaces jieba's tagging tokenizer by the scheme's segmenter and dictionary."""

    def __init__(self, scheme: Scheme) -> None:
        self._tag = tagger(scheme.segmenter, scheme.dictionary)

    def cut(self, text: str) -> list[_Tagged]:
        return [_Tagged(word, flag) for word, flag in self._tag(text)]


def maker(scheme: Scheme) -> Maker:
    """Keywords by TextRank."""
    extractor = analyse().TextRank()
    extractor.tokenizer = _Tagger(scheme)
    extractor.stop_words |= {word.decode() for word in stop_words(scheme.stop_words)}

    def make(text: str, tokens: list[bytes]) -> dict[bytes, int]:
        count = keyword_count(scheme, len(tokens))
        return choose_keywords(scheme, extractor.textrank(text, topK=count, withWeight=True), tokens)

    return make

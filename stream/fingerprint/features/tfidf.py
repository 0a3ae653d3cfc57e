"""The N tokens of highest TF-IDF, with jieba's extractor (seeds 000, 001 and 004). Words that are not in its
IDF file, as most of other languages, get the file's median. One-character words are left out."""

from __future__ import annotations

from stream.fingerprint.features.feature_methods import Maker
from stream.fingerprint.features.keywords import choose_keywords, keyword_count
from stream.fingerprint.scheme import Scheme
from stream.text.han_cutters import tfidf_extractor


class _Cut:
    """Replaces jieba's tokenizer, as the text is already cut into tokens."""

    def __init__(self) -> None:
        self.tokens: list[bytes] = []

    def cut(self, _text: str) -> list[str]:
        return [token.decode() for token in self.tokens]


def maker(scheme: Scheme) -> Maker:
    """Extracts keywords by jieba's IDF file or the scheme's."""
    extractor, cut = tfidf_extractor(scheme.idf), _Cut()
    extractor.tokenizer = cut

    def make(_text: str, tokens: list[bytes]) -> dict[bytes, int]:
        cut.tokens = tokens
        count = keyword_count(scheme, len(tokens))
        return choose_keywords(scheme, extractor.extract_tags("", topK=count, withWeight=True), tokens)

    return make

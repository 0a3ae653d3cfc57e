"""Stop words: words too common to characterise a text, by language (the lists of `stopwordsiso`)."""

from __future__ import annotations

import functools
from typing import Final

from stream.text.normalise import normalise

SEPARATOR: Final = ","


def refuse_unknown(languages: str) -> None:
    """Raise ValueError, which names the option, for a language without a list."""
    import stopwordsiso

    for language in languages.split(SEPARATOR):
        if not stopwordsiso.has_lang(language):
            available = " ".join(sorted(stopwordsiso.langs()))
            raise ValueError(f"stop_words={languages}: no list for {language!r}; lists are {available}")


@functools.cache
def stop_words(languages: str) -> frozenset[bytes]:
    """The normalised stop words of `languages`, comma-separated ISO 639-1 codes; none for ""."""
    if not languages:
        return frozenset()
    import stopwordsiso

    listed = (stopwordsiso.stopwords(language) for language in languages.split(SEPARATOR))
    return frozenset(normalise(word).encode() for words in listed for word in words)

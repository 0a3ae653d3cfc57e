"""Words so common that they say nothing of a text, by language (the `stopwordsiso` lists)."""

from __future__ import annotations

import functools
from typing import Final

from stream.text.normalise import normalise

SEPARATOR: Final = ","


def refuse_unknown(languages: str) -> None:
    """Raises ValueError for a language without a list, naming the option."""
    import stopwordsiso

    for language in languages.split(SEPARATOR):
        if not stopwordsiso.has_lang(language):
            known = " ".join(sorted(stopwordsiso.langs()))
            raise ValueError(f"stop_words={languages}: no list for {language!r}; there are {known}")


@functools.cache
def stop_words(languages: str) -> frozenset[bytes]:
    """The stop words of those languages, ISO 639-1 codes with commas between, normalised; none for ""."""
    if not languages:
        return frozenset()
    import stopwordsiso

    listed = (stopwordsiso.stopwords(language) for language in languages.split(SEPARATOR))
    return frozenset(normalise(word).encode() for words in listed for word in words)

"""Looks up the kind of features that the scheme option `features` selects."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final, cast

from stream.fingerprint.scheme import Scheme

Maker = Callable[[str, list[bytes]], dict[bytes, int]]
"""Maps (normalised text, tokens) to distinct features in UTF-8 with their counts or, with `weights=score`,
with the method's integer scores."""

HOMES: Final = {
    "words": "stream.fingerprint.features.words",
    "ngrams": "stream.fingerprint.features.ngrams",
    "shingles": "stream.fingerprint.features.shingles",
    "tfidf": "stream.fingerprint.features.tfidf",
    "textrank": "stream.fingerprint.features.textrank",
    "sentences": "stream.fingerprint.features.sentences",
}
"""Each module has `maker(scheme) -> Maker`."""


def maker(scheme: Scheme) -> Maker:
    """Return the maker that the scheme selects, with its dictionaries loaded."""
    make = cast(Callable[[Scheme], Maker], import_module(HOMES[scheme.features]).maker)
    return make(scheme)

"""A page, text or message -> fingerprint, least certain bits, sketch and text hash."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np

from stream.errors import PageError
from stream.fingerprint import files
from stream.fingerprint.hashes import hash_text, hash_tokens
from stream.fingerprint.hashing.registry import hasher
from stream.fingerprint.pairs import signed, weighted_pairs
from stream.fingerprint.recipe import recipe_of
from stream.fingerprint.row import Row, Status
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.simhash import simhash
from stream.fingerprint.sketch import shingles, sketch
from stream.fingerprint.weights import features
from stream.messages.page import Page, PageMessageError, decode_page
from stream.text.content import page_text
from stream.text.normalise import normalise
from stream.text.segment import segment, warm, words
from stream.text.url import MAX_URL, url_key
from stream.text.variants import simplified

MAX_DETAIL: Final = 500
"""Longest `detail` of a rejected row, in characters: it travels in a header."""


class Fingerprint(msgspec.Struct, frozen=True):
    """What is kept of a text."""

    fingerprint: int
    """SimHash of `scheme.width` bits."""
    uncertain: bytes
    """Its 32 least certain bit indexes, least certain first."""
    sketch: bytes
    """`scheme.sketch_bytes` that estimate similarity (see `stream.fingerprint.sketch`)."""
    text_hash: bytes
    """xxh3-128 of the normalised text, 16 bytes big-endian."""
    tokens: int
    """How many tokens the text has; below `scheme.minimum_tokens` the rest says little."""
    features: int
    """How many distinct features; without any, the fingerprint is the scheme's word for ties."""


class Fingerprinter:
    """Turns texts and pages into fingerprints by one scheme. Stateless; dictionaries load on first use.

    >>> Fingerprinter().text("Order once, then decide deterministically.").tokens
    5
    """

    def __init__(self, scheme: Scheme | None = None) -> None:
        # Made anew from its options, which checks them: constructing a scheme does not.
        self.scheme = Scheme() if scheme is None else Scheme.of(msgspec.structs.asdict(scheme))
        if self.scheme.dictionary:
            files.refuse_changed("dictionary", self.scheme.dictionary, self.scheme.dictionary_digest)
        self._recipe = recipe_of(self.scheme)
        self._tie_word = self.scheme.tie_word

    def warm(self) -> None:
        """Load tables and dictionary now rather than with the first page."""
        warm(self.scheme.segmenter, self.scheme.dictionary)
        self.normalised("预热" * 64)

    def normalised(self, text: str) -> str:
        """The form of a text that is fingerprinted."""
        plain = normalise(text)
        return plain if self.scheme.han_variants == "kept" else simplified(plain)

    def text(self, text: str) -> Fingerprint:
        """The fingerprint of plain text; never raises (lone surrogates count as U+FFFD)."""
        normalised = self.normalised(text)
        encoded = normalised.encode()
        tokens, han = segment(normalised, self.scheme.segmenter, self.scheme.dictionary)
        token_hashes = hash_tokens(tokens)
        recipe = self._recipe
        weighted = recipe.features(normalised, tokens) if recipe else features(token_hashes)
        fingerprint, uncertain = simhash(*weighted, self.scheme.width, self._tie_word)
        # Shingles are made of Han characters where there are enough, otherwise of words.
        if han.size > self.scheme.han_floor:
            units = han
        elif normalised.isascii():  # its tokens are its words
            units = token_hashes.astype(np.uint32)
        else:
            units = hash_tokens(words(normalised)).astype(np.uint32)
        return Fingerprint(
            fingerprint,
            uncertain,
            sketch(shingles(units, self.scheme.shingle), self.scheme),
            hash_text(encoded),
            token_hashes.size,
            weighted[1].size,
        )

    def features(self, pairs: Iterable[tuple[str | bytes, float]]) -> Fingerprint:
        """The fingerprint of your own (feature, weight) pairs: any distinct names, weights of any sign.

        The scheme's hash, width, cap and ties are used, nothing is normalised. The sketch is that of the set
        of features. Raises ValueError for a weight that is not finite or beyond 2**32 either way.
        """
        names, weights = weighted_pairs(pairs, self.scheme.weight_cap)
        hashes = hasher(self.scheme)(names, self.scheme.width)
        fingerprint, uncertain = simhash(*signed(hashes, weights), self.scheme.width, self._tie_word)
        units = hash_tokens(names).astype(np.uint32)
        listed = b"\0".join(sorted(b"%d %s" % pair for pair in zip(weights.tolist(), names, strict=True)))
        return Fingerprint(
            fingerprint,
            uncertain,
            sketch(shingles(units, 1), self.scheme),
            hash_text(listed),
            len(names),
            len(names),
        )

    def page(self, page: Page) -> Row:
        """The journal row of a page; what cannot be fingerprinted becomes a rejected row with a reason."""
        key = None
        try:
            key = url_key(page.url)
            found = self.text(page_text(page))
        except PageError as error:
            return rejected(error, page.url, key, page.fetched_at)
        if found.tokens < self.scheme.minimum_tokens or not found.features:
            return Row(Status.INSUFFICIENT, page.url, key, page.fetched_at, text_hash=found.text_hash)
        return Row(
            Status.SHORT if found.tokens < self.scheme.short_tokens else Status.READY,
            page.url,
            key,
            page.fetched_at,
            found.fingerprint,
            found.uncertain,
            found.sketch,
            found.text_hash,
        )

    def message(self, value: bytes | None, page_bytes: int) -> Row:
        """The journal row of a page message's value, of at most `page_bytes` once decompressed."""
        try:
            page = decode_page(value, page_bytes)
        except PageMessageError as error:
            return rejected(error, error.url, None, error.fetched_at)
        return self.page(page)


def rejected(error: PageError, url: str | None, key: str | None, fetched_at: int | None) -> Row:
    """The row of a page that cannot be fingerprinted. The URL key is found where the URL has one; a URL over
    MAX_URL is not kept, since rows must stay small."""
    if url is not None and len(url) > MAX_URL:
        url = None
    if url is not None and key is None and error.reason != "bad_url":
        try:
            key = url_key(url)
        except PageError:
            key = None
    return Row(
        Status.REJECTED, url, key, fetched_at, reason=error.reason, detail=error.detail[:MAX_DETAIL] or None
    )

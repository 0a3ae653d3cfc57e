"""Fingerprints texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np

from stream.fingerprint import files
from stream.fingerprint.default_weights import features
from stream.fingerprint.hashing.hash_functions import hasher
from stream.fingerprint.keyed_hashes import hash_ranges, hash_tokens, text_hasher
from stream.fingerprint.recipe import recipe_of
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import hash_keys, text_key, unit_keys
from stream.fingerprint.simhash import bit_sums, signs, simhash
from stream.fingerprint.sketch import shingles, sketch
from stream.fingerprint.tokens import Tokens, plain_tokens
from stream.fingerprint.weighted_features import fold_signs, weighted_pairs
from stream.interpreted import are_interpreted
from stream.text.normalise import normalise
from stream.text.points import Points, points_of
from stream.text.segment import pieces, tokens_of
from stream.text.variants import simplified, simplified_points

BATCH_CHARACTERS: Final = 65_536
"""Most characters of a batch of texts, so that the working arrays stay in the cache."""

_EVERY_LOOP: Final = (
    ["warm"],
    ["warm", "up"],
    ["预热" * 64],
    ["预热" * 64, "e\u0301 ﬃ", "ไทย", "warm up"],
    ["a ไทย"],
)
"""Batches that exercise every code path: ASCII and wider text, one text and several, combining marks."""


class Fingerprint(msgspec.Struct, frozen=True, gc=False):
    """The fingerprint of a text, with its sketch and hash."""

    fingerprint: int
    """SimHash of `scheme.width` bits."""
    sketch: bytes
    """A sketch to estimate similarity by, of `scheme.sketch_bytes` (see `stream.fingerprint.sketch`)."""
    text_hash: bytes
    """A keyed hash of the normalised text, 16 bytes."""
    tokens: int
    """Number of tokens. Below `scheme.minimum_tokens`, fingerprint and sketch say little."""
    features: int
    """Number of distinct features. If there are none, the fingerprint is `scheme.tie_word`."""
    length: int = 0
    """Characters of the normalised text."""


class Fingerprinter:
    """Fingerprints texts by one scheme. Stateless; dictionaries are loaded on first use.

    >>> Fingerprinter().text("Order once, then decide deterministically.").tokens
    5
    """

    def __init__(self, scheme: Scheme | None = None, seed: bytes | None = None) -> None:
        """`seed` is that of the scheme (16 bytes); without it, that of the scheme's file or the public seed.

        Raises SettingsError if a file that the scheme names is missing or has changed, and if the seed is not
        the scheme's.
        """
        # Converted from its options, since only conversion validates them; the constructor does not.
        self.scheme = Scheme() if scheme is None else Scheme.of(msgspec.structs.asdict(scheme))
        if self.scheme.dictionary:
            files.refuse_changed("dictionary", self.scheme.dictionary, self.scheme.dictionary_digest)
        if seed is None:
            seed = self.scheme.seed()
        else:
            self.scheme.refuse_other_seed(seed)
        self.seed = seed
        self._keys, self._unit_keys = hash_keys(seed), unit_keys(seed)
        self._hash_text = text_hasher(text_key(seed))
        self._hash = hasher(self.scheme, seed)
        self._recipe = recipe_of(self.scheme, seed)
        self._tie_word = self.scheme.tie_word
        self._warm = False

    def warm(self) -> None:
        """Load tables, dictionaries and all compiled loops, so that no text has to wait for them. Takes 10 s
        if the loops have to be compiled first."""
        self._warm = True
        for texts in _EVERY_LOOP:
            self.texts(texts)

    def normalise(self, text: str) -> str:
        """Return the normalised form of a text, which is what gets fingerprinted."""
        plain = normalise(text)
        return plain if self.scheme.han_variants == "kept" else simplified(plain)

    def text(self, text: str) -> Fingerprint:
        """Return the fingerprint of plain text. Never raises; lone surrogates count as U+FFFD."""
        return self.texts([text])[0]

    def texts(self, texts: Sequence[str]) -> list[Fingerprint]:
        """Return the fingerprint of each text. Each equals that of `text`, at a fraction of the cost.

        Texts are processed by compiled loops if there are several or `warm` was called, and the scheme has no
        recipe. Otherwise, and where loops are interpreted, they are processed by NumPy, one at a time, since
        importing the compiler and loading the loops takes a command that fingerprints one page 0.6 s.
        """
        if self._recipe or are_interpreted() or not (self._warm or len(texts) > 1):
            return list(map(self._text, texts))
        fingerprints: list[Fingerprint] = []
        batch: list[str] = []
        size = 0
        for text in texts:
            if batch and size + len(text) > BATCH_CHARACTERS:
                fingerprints += self._batch(batch)
                batch, size = [], 0
            batch.append(text)
            size += len(text)
        return fingerprints + self._batch(batch) if batch else fingerprints

    def _text(self, text: str) -> Fingerprint:
        """Return the fingerprint of one text, by NumPy."""
        normalised = self.normalise(text)
        points = points_of([normalised])
        ranges = pieces(points, self.scheme.segmenter, self.scheme.dictionary)
        if self._recipe:
            weighted = self._recipe.features(normalised, tokens_of(normalised, ranges))
        else:
            weighted = features(hash_ranges(points.points, ranges.starts, ranges.ends, self._keys))
        units = hash_ranges(points.points, ranges.unit_starts, ranges.unit_ends, self._unit_keys)
        return Fingerprint(
            simhash(*weighted, self.scheme.width, self._tie_word),
            sketch(shingles(units.astype(np.uint32), self.scheme.shingle), self.scheme),
            self._hash_text(normalised.encode()),
            ranges.starts.size,
            weighted[1].size,
            len(normalised),
        )

    def _batch(self, texts: Sequence[str]) -> list[Fingerprint]:
        """Return the fingerprints of texts, by compiled loops as far as these have the options."""
        from stream.fingerprint.bit_sums_compiled import bit_sums_of_each
        from stream.text.normalise_compiled import encoded, normalised_points

        points = normalised_points(texts)
        if self.scheme.han_variants == "folded":
            points = simplified_points(points)
        tokens = self._tokens(points)
        # For a long text, which has a batch of its own, sorting takes less memory than a hash table.
        long = len(texts[0]) > BATCH_CHARACTERS
        if long:
            distinct, weights = features(tokens.hashes)
            sums, counts = bit_sums(distinct, weights)[None], [distinct.size]
        else:
            sums, counted = bit_sums_of_each(tokens.hashes, tokens.bounds)
            counts = counted.tolist()
        columns = zip(
            signs(sums, self._tie_word),
            self._sketches(tokens, compiled=not long and self.scheme.sketch == "parity"),
            map(self._hash_text, encoded(points)),
            (tokens.bounds[1:] - tokens.bounds[:-1]).tolist(),
            counts,
            (points.bounds[1:] - points.bounds[:-1] - 1).tolist(),
            strict=True,
        )
        return [Fingerprint(*of_text) for of_text in columns]

    def _tokens(self, texts: Points) -> Tokens:
        if self.scheme.segmenter == "rjieba" and not self.scheme.dictionary:
            from stream.fingerprint.tokens_compiled import scanned_tokens

            return scanned_tokens(texts, self._keys, self._unit_keys)
        scheme = self.scheme
        return plain_tokens(texts, self._keys, self._unit_keys, scheme.segmenter, scheme.dictionary)

    def _sketches(self, tokens: Tokens, compiled: bool) -> list[bytes]:
        """Return the sketch of each text."""
        hashes, bounds = tokens.units, tokens.unit_bounds
        if compiled:
            from stream.fingerprint.parity_compiled import parity_sketches

            words = parity_sketches(hashes, bounds, self.scheme.shingle, self.scheme.sketch_bins)
            return [row.tobytes() for row in words.astype("<u8", copy=False)]
        return [
            sketch(shingles(hashes[start:end], self.scheme.shingle), self.scheme)
            for start, end in pairwise(bounds.tolist())
        ]

    def features(self, pairs: Iterable[tuple[str | bytes, float]]) -> Fingerprint:
        """Return the fingerprint of your own (feature, weight) pairs. Features are distinct; weights of any
        sign.

        Uses the scheme's hash, width, weight cap and ties, and normalises nothing. The sketch is that of the
        set of features. Raises ValueError for a weight that is not finite or not within -2**32 to 2**32.
        """
        names, weights = weighted_pairs(pairs, self.scheme.weight_cap)
        hashes = self._hash(names, self.scheme.width)
        fingerprint = simhash(*fold_signs(hashes, weights), self.scheme.width, self._tie_word)
        own = hash_tokens(names, self._unit_keys).astype(np.uint32)
        listed = msgspec.msgpack.encode(sorted(zip(names, weights.tolist(), strict=True)))
        return Fingerprint(
            fingerprint,
            sketch(shingles(own, 1), self.scheme),
            self._hash_text(listed),
            len(names),
            len(names),
        )

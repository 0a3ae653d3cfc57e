"""What a fingerprint depends on, in one value with a short name.

Two fingerprints may be compared only when their schemes are equal, so the scheme id travels with every
journal record, state directory and verdict.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

import msgspec
import xxhash

from stream.errors import SettingsError
from stream.fingerprint import files
from stream.fingerprint.features import stemming, stop_words

UNCERTAIN_BITS: Final = 32
"""How many of the least certain bit indexes a row carries (a journal column of this many bytes)."""

MINIMA: Final = 5
"""How many minima of its shingles a sketch ends with, all in one word (see `stream.fingerprint.minima`)."""

BEHAVIOUR: Final[dict[str, int]] = {
    # Raised by hand when a golden output of that part changes. Package versions are deliberately not
    # used: a patch release that changes nothing must not stop a fleet.
    "decode": 1,
    "extract": 2,
    "normalise": 2,
    "segment": 2,
    "url_key": 1,
    "simhash": 3,
    "sketch": 4,
}

Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Path = Annotated[str, msgspec.Meta(max_length=4096)]

_FILES: Final = ("dictionary", "idf")
"""Options that name a file. Its digest is part of the scheme id, its place is not."""
_TIES: Final = {
    "random": 0xF39CC0605CEDC8349E3779B97F4A7C15,
    "zero": 0,
    "one": 2**128 - 1,
}
"""The golden ratio's digits, so that neither 0 nor 1 is preferred; 0 as seeds 002 to 004; 1 as seed 000."""


class Scheme(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can change a fingerprint or a sketch. Defaults are the measured best."""

    width: Literal[32, 64, 128] = 64
    """Fingerprint width in bits. Tables of fingerprints take at most 64, those of minima any of these."""
    segmenter: Literal["rjieba", "jieba"] = "rjieba"
    """Who cuts Han runs into words. Tokens differ a little, hence part of the scheme."""
    han_variants: Literal["kept", "folded"] = "kept"
    """Whether a traditional and a simplified copy are different texts, or the same (see `text.variants`)."""
    dictionary: Path = ""
    """File of further words for the segmenter, in jieba's format; the same path on every worker."""
    dictionary_digest: str = ""
    """xxh3-128 of that file; found when the scheme is made."""
    features: Literal["words", "ngrams", "shingles", "tfidf", "textrank", "sentences"] = "words"
    """What is hashed; `stream/fingerprint/features` has a file each."""
    feature_length: Annotated[int, msgspec.Meta(ge=1, le=64)] = 3
    """Length of `ngrams` in characters, of `shingles` in words."""
    keywords: Positive = 20
    """How many keywords `tfidf` and `textrank` keep."""
    keyword_every: Count = 0
    """One keyword more for every so many tokens of the text; 0 for a fixed number."""
    sentences: Positive = 3
    """How many of the longest `sentences`."""
    stop_words: str = ""
    """Languages (ISO 639-1, commas between) whose stop words are left out of the features."""
    stem: str = "none"
    """Snowball algorithm that tokens are stemmed by, such as `english`."""
    weights: Literal["tf", "sqrt", "log", "tfidf", "score"] = "sqrt"
    """Weight of a feature by its frequency; `score` is that of the keyword method itself."""
    idf: Path = ""
    """File of inverse document frequencies, "feature number" a line; jieba's own where none is named."""
    idf_digest: str = ""
    """xxh3-128 of that file; found when the scheme is made."""
    weight_cap: Annotated[int, msgspec.Meta(ge=1, le=100)] = 100
    """Largest share of one feature in the sum of weights, in percent; 100 caps nothing."""
    hash: Literal["polynomial", "xxh3", "md5", "sha1", "fnv1a", "jenkins", "murmur3"] = "polynomial"
    """Hash of the features; `stream/fingerprint/hashing` has a file each."""
    ties: Literal["random", "zero", "one"] = "random"
    """Bits whose sum is 0: those of a fixed pseudo-random word, or always 0, or always 1."""
    minimum_tokens: Count = 8
    """A page with fewer tokens is `insufficient`."""
    short_tokens: Count = 0
    """A page with fewer tokens is short: the verdict option `short_distance` holds for it. 0: none is."""
    shingle: Positive = 5
    """Shingle length of the sketch, in Han characters or words."""
    han_floor: Count = 100
    """Texts with more Han characters than this are shingled by character, others by word."""
    sketch: Literal["parity", "minhash"] = "parity"
    """How shingles are kept: an odd sketch, half as noisy near the threshold, or b-bit MinHash."""
    sketch_bins: Annotated[int, msgspec.Meta(ge=64, le=8192, multiple_of=64)] = 1920
    """Bins of the sketch."""
    sketch_bits: Annotated[int, msgspec.Meta(ge=1, le=8)] = 1
    """Bits kept of each bin; 1 for `parity`."""

    def __post_init__(self) -> None:
        """Raises ValueError, naming the option, for what contradicts another or names what is not there."""
        keyworded = self.features in ("tfidf", "textrank")
        if self.weights == "score" and not keyworded:
            raise ValueError(f"weights=score: features={self.features} have none; tfidf and textrank do")
        if self.idf and self.features != "tfidf" and self.weights != "tfidf":
            raise ValueError(f"idf={self.idf}: neither features nor weights are tfidf")
        if self.sketch == "parity" and self.sketch_bits != 1:
            raise ValueError(f"sketch_bits={self.sketch_bits}: sketch=parity keeps one bit of a bin")
        if self.stop_words:
            stop_words.refuse_unknown(self.stop_words)
        if self.stem != "none":
            stemming.refuse_unknown(self.stem)
        for option in _FILES:
            path, known = getattr(self, option), getattr(self, f"{option}_digest")
            if path and not known:
                msgspec.structs.force_setattr(self, f"{option}_digest", files.digest(option, path))
            elif known and not path:
                raise ValueError(f"{option}_digest={known}: {option} names no file")

    @classmethod
    def of(cls, options: dict[str, Any]) -> Self:
        """A scheme of options, numbers also as text. Raises SettingsError, naming what is wrong."""
        try:
            return msgspec.convert(options, cls, strict=False)
        except msgspec.ValidationError as error:
            raise SettingsError(f"scheme: {error}") from None

    @property
    def tie_word(self) -> int:
        """The bits, of `width`, that a fingerprint has where sums are 0."""
        return _TIES[self.ties] & (1 << self.width) - 1

    @property
    def sketch_bytes(self) -> int:
        """Size of one sketch: `sketch_bits` planes of `sketch_bins` bits, a set's size for `parity`, and the
        word of its minima."""
        return self.sketch_bins * self.sketch_bits // 8 + (16 if self.sketch == "parity" else 8)

    @property
    def id(self) -> str:
        """16 hex digits that name this scheme, behaviour numbers included."""
        options = {name: value for name, value in msgspec.structs.asdict(self).items() if name not in _FILES}
        content = msgspec.json.encode({"scheme": options, "behaviour": BEHAVIOUR}, order="sorted")
        return xxhash.xxh3_64_hexdigest(content)

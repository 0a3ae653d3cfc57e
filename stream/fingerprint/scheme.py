"""The scheme: all options that determine a fingerprint, with a short id.

Fingerprints are comparable only if their schemes are equal, so every journal record, state directory and
verdict carries the scheme id.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

import msgspec
import xxhash

from stream.errors import SettingsError
from stream.fingerprint import files
from stream.fingerprint.minima import MINIMA_WORDS
from stream.fingerprint.seed import PUBLIC_DIGEST, PUBLIC_SEED, digest_of, read_seed
from stream.text import stemming, stop_words
from stream.text.characters import UNICODE
from stream.text.url import UrlRules, url_rules

BEHAVIOUR: Final[dict[str, int]] = {
    # Versions of the steps, raised by hand when a golden output changes. Package versions are not part of the
    # scheme, since a patch release that changes no output must not stop a deployment.
    "decode": 2,
    "extract": 9,
    "normalise": 3,
    "segment": 3,
    "url_key": 4,
    "hashes": 1,
    "simhash": 4,
    "sketch": 10,
}

Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Path = Annotated[str, msgspec.Meta(max_length=4096)]

FILES: Final = ("dictionary", "idf", "seed_file")
"""Options that name a file. Its digest is part of the scheme id, its path is not."""
_TIES: Final = {
    "random": 0xF39CC0605CEDC8349E3779B97F4A7C15,
    "zero": 0,
    "one": 2**128 - 1,
}
"""The bits of a fingerprint whose sums are 0. `random` has the golden ratio's digits, so that neither 0 nor 1
is preferred; `zero` is as in seeds 002 to 004, `one` as in seed 000."""


class Scheme(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All options that determine a fingerprint and its sketch. The defaults measured best."""

    width: Literal[32, 64, 128] = 64
    """Fingerprint width in bits. Tables of fingerprints support 32 and 64, those of minima also 128."""
    segmenter: Literal["rjieba", "jieba"] = "rjieba"
    """Segmenter that cuts Han runs into words. The two differ in some tokens."""
    han_variants: Literal["kept", "folded"] = "kept"
    """Whether a traditional and a simplified copy are different texts, or the same (see `text.variants`)."""
    dictionary: Path = ""
    """User dictionary of the segmenter, in jieba's format; at the same path on every worker."""
    dictionary_digest: str = ""
    """xxh3-128 of that file, computed when the scheme is made."""
    features: Literal["words", "ngrams", "shingles", "tfidf", "textrank", "sentences"] = "words"
    """Kind of the features; each has a file in `stream/fingerprint/features`."""
    feature_length: Annotated[int, msgspec.Meta(ge=1, le=64)] = 3
    """Length of `ngrams` in characters, of `shingles` in words."""
    keywords: Positive = 20
    """Number of keywords that `tfidf` and `textrank` keep."""
    keyword_every: Count = 0
    """Adds a keyword per this many tokens of the text; 0 adds none."""
    sentences: Positive = 3
    """Number of longest sentences that `sentences` keeps."""
    stop_words: str = ""
    """Languages (ISO 639-1, comma-separated) whose stop words are left out of the features."""
    stem: str = "none"
    """Snowball algorithm by which tokens are stemmed, such as `english`."""
    weights: Literal["tf", "sqrt", "log", "tfidf", "score"] = "sqrt"
    """Weight of a feature by its frequency, or `score`, the score of the keyword method. `sqrt` counts four
    occurrences at most."""
    idf: Path = ""
    """File of inverse document frequencies, a "feature number" per line; jieba's own if not set."""
    idf_digest: str = ""
    """xxh3-128 of that file, computed when the scheme is made."""
    weight_cap: Annotated[int, msgspec.Meta(ge=1, le=100)] = 100
    """Largest share of one feature in the sum of weights, in percent; 100 means no cap."""
    hash: Literal["multilinear", "xxh3", "md5", "sha1", "fnv1a", "jenkins", "murmur3"] = "multilinear"
    """Hash function of the features; see `stream/fingerprint/hashing`."""
    seed_file: Path = ""
    """File of the 128-bit seed that keys all hashes, in 32 hex digits; the public seed if not set. For a
    journal, a random seed if not set; it is stored in the genesis."""
    seed_digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")] = PUBLIC_DIGEST
    """A digest that identifies the seed and does not reveal it."""
    ties: Literal["random", "zero", "one"] = "random"
    """Value of bits whose sum is 0: from a fixed pseudo-random pattern, always 0, or always 1."""
    minimum_tokens: Count = 8
    """A page with fewer tokens is `insufficient`."""
    short_tokens: Count = 0
    """A page with fewer tokens is short: the verdict option `short_distance` applies. 0: none is."""
    url_key: str = "routes,sorted,tracking"
    """What makes two URLs the address of one page: rules of `stream.text.url`, separated by commas."""
    shingle: Positive = 5
    """Shingle length of the sketch, in units (see `stream.text.segment`)."""
    sketch: Literal["parity", "minhash"] = "parity"
    """Kind of sketch: an odd sketch, which is half as noisy near the threshold, or b-bit MinHash."""
    sketch_bins: Annotated[int, msgspec.Meta(ge=64, le=8192, multiple_of=64)] = 1920
    """Number of bins of the sketch."""
    sketch_bits: Annotated[int, msgspec.Meta(ge=1, le=8)] = 1
    """Bits per bin; 1 for `parity`."""

    def __post_init__(self) -> None:
        """Raises ValueError, which names the option, for contradictory options and for missing files."""
        keyworded = self.features in ("tfidf", "textrank")
        if self.weights == "score" and not keyworded:
            raise ValueError(f"weights=score: features={self.features} have no scores; use tfidf or textrank")
        if self.idf and self.features != "tfidf" and self.weights != "tfidf":
            raise ValueError(f"idf={self.idf}: neither features nor weights are tfidf")
        if self.sketch == "parity" and self.sketch_bits != 1:
            raise ValueError(f"sketch_bits={self.sketch_bits}: sketch=parity has one bit per bin")
        if self.stop_words:
            stop_words.refuse_unknown(self.stop_words)
        if self.stem != "none":
            stemming.refuse_unknown(self.stem)
        url_rules(self.url_key)
        if self.seed_file and self.seed_digest == PUBLIC_DIGEST:
            msgspec.structs.force_setattr(self, "seed_digest", digest_of(read_seed(self.seed_file)))
        for option in ("dictionary", "idf"):
            path, content_digest = getattr(self, option), getattr(self, f"{option}_digest")
            if path and not content_digest:
                msgspec.structs.force_setattr(self, f"{option}_digest", files.digest(option, path))
            elif content_digest and not path:
                raise ValueError(f"{option}_digest={content_digest}: {option} names no file")

    @classmethod
    def of(cls, options: dict[str, Any]) -> Self:
        """Return a scheme from options by name; numbers may be strings. Raises SettingsError, which names the
        option."""
        try:
            return msgspec.convert(options, cls, strict=False)
        except msgspec.ValidationError as error:
            raise SettingsError(f"scheme: {error}") from None

    def with_seed(self, seed: bytes) -> Self:
        """This scheme keyed by another seed, which is not part of it."""
        return msgspec.structs.replace(self, seed_file="", seed_digest=digest_of(seed))

    def seed(self) -> bytes:
        """Return the seed in `seed_file`, or the public seed.

        Raises SettingsError if the file is missing or has changed, and if the scheme was made with a seed
        that is in no file, such as a journal's.
        """
        try:
            secret = read_seed(self.seed_file) if self.seed_file else PUBLIC_SEED
        except ValueError as error:
            raise SettingsError(f"scheme option {error}") from None
        self.refuse_other_seed(secret)
        return secret

    def refuse_other_seed(self, seed: bytes) -> None:
        """Raise SettingsError unless the scheme was made with this seed."""
        if digest_of(seed) != self.seed_digest:
            source = f"seed_file={self.seed_file}" if self.seed_file else "no seed_file"
            raise SettingsError(
                f"scheme option {source}: the scheme was made with another seed, of digest"
                f" {self.seed_digest}; `neardup topics seed` writes a journal's seed to a file"
            )

    @property
    def url_rules(self) -> UrlRules:
        """The rules that `url_key` names."""
        return url_rules(self.url_key)

    @property
    def tie_word(self) -> int:
        """The values of bits whose sums are 0, as an integer of `width` bits."""
        return _TIES[self.ties] & (1 << self.width) - 1

    @property
    def sketch_bytes(self) -> int:
        """Size of a sketch in bytes: `sketch_bits` planes of `sketch_bins` bits, for `parity` the size of the
        set, and the minima."""
        size = 8 if self.sketch == "parity" else 0
        return self.sketch_bins * self.sketch_bits // 8 + size + 8 * MINIMA_WORDS

    @property
    def id(self) -> str:
        """16 hex digits that identify this scheme, a hash of its options, of BEHAVIOUR and of the version of
        Unicode."""
        options = {name: value for name, value in msgspec.structs.asdict(self).items() if name not in FILES}
        content = {"scheme": options, "behaviour": BEHAVIOUR, "unicode": UNICODE}
        return xxhash.xxh3_64_hexdigest(msgspec.json.encode(content, order="sorted"))

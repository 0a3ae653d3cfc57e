"""What a fingerprint depends on, in one value with a short name.

Two fingerprints may be compared only when their schemes are equal, so the scheme id travels with every
journal record, state directory and verdict.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Final, Literal

import msgspec
import xxhash

UNCERTAIN_BITS: Final = 32
"""How many of the least certain bit indexes a row carries (a journal column of this many bytes)."""

BEHAVIOUR: Final[dict[str, int]] = {
    # Raised by hand when a golden output of that part changes. Package versions are deliberately not
    # used: a patch release that changes nothing must not stop a fleet.
    "decode": 1,
    "extract": 1,
    "normalise": 1,
    "segment": 1,
    "url_key": 1,
    "simhash": 1,
    "sketch": 1,
}

Positive = Annotated[int, msgspec.Meta(ge=1)]


class Scheme(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can change a fingerprint or a sketch. Defaults are the measured best."""

    width: Literal[64] = 64
    """Fingerprint width in bits."""
    segmenter: Literal["rjieba", "jieba"] = "rjieba"
    """Who cuts Han runs into words. Tokens differ a little, hence part of the scheme."""
    minimum_tokens: Annotated[int, msgspec.Meta(ge=0)] = 8
    """A page with fewer tokens is `insufficient`."""
    shingle: Positive = 5
    """Shingle length of the sketch, in Han characters or words."""
    han_floor: Annotated[int, msgspec.Meta(ge=0)] = 100
    """Texts with more Han characters than this are shingled by character, others by word."""
    sketch_bins: Annotated[int, msgspec.Meta(ge=64, le=8192, multiple_of=64)] = 1024
    """Bins of the one-permutation MinHash."""
    sketch_bits: Annotated[int, msgspec.Meta(ge=1, le=8)] = 1
    """Bits kept of each bin's minimum."""

    @property
    def sketch_bytes(self) -> int:
        """Size of one sketch: `sketch_bits` planes of `sketch_bins` bits."""
        return self.sketch_bins * self.sketch_bits // 8

    @property
    def id(self) -> str:
        """16 hex digits that name this scheme, behaviour numbers included."""
        content = msgspec.json.encode({"scheme": self, "behaviour": BEHAVIOUR}, order="sorted")
        return xxhash.xxh3_64_hexdigest(content)

    def matching_bins(self, similarity: Fraction) -> int:
        """The least number of matching bins that estimates at least `similarity`.

        A bin matches by chance with probability 2**-b, so E[matches / bins] = J + (1 - J) / 2**b
        (Li and Koenig, b-Bit Minwise Hashing, WWW 2010).
        """
        chance = Fraction(1, 2**self.sketch_bits)
        share = similarity + (1 - similarity) * chance
        return -(-(share.numerator * self.sketch_bins) // share.denominator)

    def similarity(self, matches: int) -> float:
        """Estimated Jaccard similarity, in [0, 1] with four decimals, of that many matching bins."""
        chance = Fraction(1, 2**self.sketch_bits)
        estimate = (Fraction(matches, self.sketch_bins) - chance) / (1 - chance)
        return round(float(max(Fraction(0), estimate)), 4)

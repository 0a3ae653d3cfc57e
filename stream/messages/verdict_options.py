"""The options that decide verdicts. They live in the journal's genesis record, never in flags alone."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Literal

import msgspec
import xxhash

from stream.fingerprint.scheme import MINIMA

Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class VerdictOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What makes two pages near-duplicates, and which buckets are looked into for candidates."""

    mode: Literal["verified", "strict"] = "verified"
    """`strict` is the paper as it stands: distance <= k, exact probes, no sketch, no bucket cap."""
    distance: Annotated[int, msgspec.Meta(ge=0, le=63)] = 14
    """Largest Hamming distance of a near-duplicate (k in the paper); no modified pair was farther apart."""
    short_distance: Annotated[int, msgspec.Meta(ge=0, le=63)] = 0
    """The same where the later page is short (the scheme's `short_tokens`), if more than `distance`."""
    similarity: Annotated[str, msgspec.Meta(pattern=r"^(0\.\d{1,4}|1|1\.0+)$")] = "0.795"
    """Least estimated Jaccard similarity; a decimal string, so that no rounding can differ. A little below
    0.8, so that the estimate's noise loses few of the pairs just above it."""
    keys: Literal["minima", "fingerprint"] = "minima"
    """What the tables are of: the word of five minima of the sketch, or the fingerprint. Strict mode is about
    fingerprints whatever this says."""
    blocks: Annotated[int, msgspec.Meta(ge=1, le=64)] = 5
    """m: the tables' words are cut into this many blocks; minima are five."""
    choose: Positive = 2
    """r: each table's prefix is made of this many of them."""
    flip_bits: Count = 0
    """Multi-probe, for tables of fingerprints: how many of a prefix's least certain bits may be flipped."""
    flips: Annotated[int, msgspec.Meta(ge=0, le=3)] = 0
    """Multi-probe: how many of them are flipped at once."""
    bucket_cap: Positive = 128
    """An anchor stays out of buckets that hold this many live anchors, but for the emptiest (rule 16)."""
    compared: Count = 64
    """A page's sketch is compared with those of so many candidates at most, the nearest by distance, of
    equally near ones the oldest; 0: with all, as in strict mode (rule 18)."""

    def __post_init__(self) -> None:
        """Raises ValueError for options that contradict each other, naming them."""
        if self.choose > self.blocks:
            raise ValueError(f"choose={self.choose} of blocks={self.blocks}: there are not so many")
        if self.by_minima and self.blocks != MINIMA:
            raise ValueError(f"blocks={self.blocks}: the minima are {MINIMA} blocks; see keys=fingerprint")
        if self.by_minima and self.flips:
            raise ValueError(f"flips={self.flips}: minima have no uncertain bits; see keys=fingerprint")
        for option in ("distance", "short_distance"):
            if self.strict and getattr(self, option) > self.blocks - self.choose:
                raise ValueError(
                    f"mode=strict finds every pair up to blocks - choose = {self.blocks - self.choose}, "
                    f"so {option}={getattr(self, option)} needs other blocks"
                )

    @property
    def strict(self) -> bool:
        """Whether the mode is `strict`."""
        return self.mode == "strict"

    @property
    def by_minima(self) -> bool:
        """Whether candidates are found by the minima of shingles, not by fingerprints."""
        return self.keys == "minima" and not self.strict

    @property
    def largest_distance(self) -> int:
        """Of any two pages, short ones included."""
        return max(self.distance, self.short_distance)

    @property
    def least_similarity(self) -> Fraction:
        """`similarity` as an exact number."""
        return Fraction(self.similarity)

    @property
    def id(self) -> str:
        """16 hex digits that name these options. Without a limit, those of a time that knew none."""
        named = msgspec.to_builtins(self)
        if not self.compared:
            del named["compared"]
        return xxhash.xxh3_64_hexdigest(msgspec.json.encode(named, order="sorted"))

    @classmethod
    def paper(cls, k: int = 3, blocks: int = 5) -> VerdictOptions:
        """The paper's rule: distance <= k, with a design that misses no such pair."""
        return cls(mode="strict", distance=k, blocks=blocks, choose=blocks - k, compared=0)


class RecordedOptions(VerdictOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """As a genesis has them. One that was written before there was such an option keeps its verdicts."""

    compared: Count = 0

    @property
    def meant(self) -> VerdictOptions:
        """The same, whatever wrote them."""
        return VerdictOptions(**msgspec.structs.asdict(self))

"""The options that decide verdicts, and what verdicts say. The genesis of the journal has them (rule 11)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
import xxhash

from stream.fingerprint import minima

Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
LEAST_LIFETIME: Final = 600
"""Seconds. Log time may be ten minutes ahead of a judge's clock (rule 15)."""
MOST_LIFETIME: Final = 100 * 365 * 86_400
"""Seconds."""
ANY_DISTANCE: Final = 128
"""No two fingerprints differ in more bits."""


RULE: Final = ("MINIMUM_RANK", "MINIMUM_BITS", "RESERVE_BITS", "FIRST_MINIMA", "THIRTIETHS", "SIDES")
"""Names of the constants in `stream.fingerprint.minima` that decide which pages are compared."""
DECIDING: Final = (
    "similarity",
    "margin",
    "evidence",
    "blocks",
    "choose",
    "bucket_cap",
    "compared",
    "baselines",
)
"""Options whose defaults decide."""


class VerdictOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When two pages are near-duplicates, and how candidates for comparison are found."""

    mode: Literal["verified", "strict"] = "verified"
    """`verified` decides by similarity; `strict` follows the paper exactly: distance <= k, exact probes, no
    sketch, no bucket cap."""
    distance: Annotated[int, msgspec.Meta(ge=0, le=63)] | None = None
    """Largest Hamming distance of near-duplicates in strict mode, which needs it (k in the paper). Otherwise
    no distance decides: that of a copy can be as large as whoever adds heavy words to it likes."""
    short_distance: Annotated[int, msgspec.Meta(ge=0, le=63)] = 0
    """In strict mode, largest distance if the later page is short (the scheme's `short_tokens`), if more than
    `distance`."""
    similarity: Annotated[str, msgspec.Meta(pattern=r"^(0\.\d{1,4}|1|1\.0+)$")] = "0.798"
    """Least estimated Jaccard similarity of near-duplicates, a decimal string to avoid rounding. The default
    is a little below 0.8, so that the noise of the estimate loses few pairs just above 0.8."""
    margin: Annotated[str, msgspec.Meta(pattern=r"^0(\.\d{1,4})?$")] = "0.002"
    """What `similarity` leaves for that noise: two pages so short that they are compared by lists of their
    shingles (336 at most; see `stream.fingerprint.small_sets`) must be that much more alike."""
    evidence: Annotated[str, msgspec.Meta(pattern=r"^(0\.\d{1,4}|1|1\.0+)$")] = "0.5"
    """Least similarity of the page that a unique page is nearest to, of those that it was compared with
    (rule 18), for the verdict to name that; 1 never names any, and neither does strict mode."""
    blocks: Annotated[int, msgspec.Meta(ge=1, le=64)] = 5
    """m: in strict mode, number of blocks into which the fingerprint is divided. Otherwise tables index pairs
    of minima of the page's shingles (LSH banding)."""
    choose: Positive = 2
    """r: in strict mode, number of blocks that make up the prefix of each table."""
    bucket_cap: Positive = 16
    """Number of live anchors with which a bucket of two minima is full. In place of it, an anchor enters one
    of those in reserve (rule 16)."""
    compared: Count = 64
    """Maximum number of candidates whose sketches are compared with that of a page: those of the least
    rank, by distance and minima that differ, ties going to the oldest. 0 compares all, as strict mode does
    (rule 18)."""
    baselines: Annotated[int, msgspec.Meta(ge=1, le=16)] = 2
    """Number of a URL's last different pages that its next page is compared with: one that is like any of
    them is a recrawl (rule 20)."""
    disclosure: Literal["internal", "public"] = "internal"
    """What verdicts say of how alike pages are. `public` is for consumers who may be those that are crawled:
    without `fingerprint`, `distance` and `nearest`, and with `similarity` to two decimals. It changes no
    verdict."""
    lifetime: int | None = None
    """Seconds of log time after which pages expire that no verdict named meanwhile (rule 23); None keeps all
    pages. At least ten minutes."""

    def __post_init__(self) -> None:
        """Check the options against each other. Raises ValueError that names the option at fault."""
        if self.choose > self.blocks:
            raise ValueError(f"choose={self.choose}: more than blocks={self.blocks}")
        for option, default in (("blocks", 5), ("choose", 2)):
            if not self.strict and (value := getattr(self, option)) != default:
                raise ValueError(
                    f"{option}={value}: divides fingerprints in mode=strict alone; otherwise it is {default}"
                )
        if self.strict and self.distance is None:
            raise ValueError("mode=strict: distance is missing, the largest one of near-duplicates")
        for option in ("distance", "short_distance"):
            value = getattr(self, option)
            if not self.strict and value:
                raise ValueError(f"{option}={value}: decides in mode=strict alone; otherwise similarity does")
            if self.strict and value > self.blocks - self.choose:
                raise ValueError(
                    f"mode=strict finds every pair up to blocks - choose = {self.blocks - self.choose}, "
                    f"so {option}={value} needs other blocks"
                )
        if self.lifetime is not None and not LEAST_LIFETIME <= self.lifetime <= MOST_LIFETIME:
            raise ValueError(f"lifetime={self.lifetime}s: must be from 10 minutes to 100 years")

    @property
    def strict(self) -> bool:
        """Whether the mode is `strict`."""
        return self.mode == "strict"

    @property
    def public(self) -> bool:
        """Whether verdicts say only what those may know that are crawled."""
        return self.disclosure == "public"

    @property
    def within(self) -> int:
        """Largest distance at which two pages can be near-duplicates that are not short."""
        return ANY_DISTANCE if self.distance is None else self.distance

    @property
    def largest_distance(self) -> int:
        """Largest distance at which any two pages, short ones included, can be near-duplicates."""
        return max(self.within, self.short_distance)

    @property
    def id(self) -> str:
        """16 hex digits that identify these options and the rule behind them: of options that are not at
        their default, so that another option changes no id, and of the constants and defaults that decide."""
        default = msgspec.structs.asdict(type(self)())
        chosen = {name: each for name, each in msgspec.structs.asdict(self).items() if each != default[name]}
        rule = {name: getattr(minima, name) for name in RULE}
        rule |= {name: default[name] for name in DECIDING}
        return xxhash.xxh3_64_hexdigest(msgspec.json.encode([chosen, rule], order="sorted"))

    @classmethod
    def paper(cls, k: int = 3, blocks: int = 5) -> VerdictOptions:
        """The rule of the paper: distance <= k, with a table design that misses no such pair."""
        return cls(mode="strict", distance=k, blocks=blocks, choose=blocks - k, compared=0)

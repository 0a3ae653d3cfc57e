"""Explains why two pages are, or are not, near-duplicates, with what the judge considers and more.

The first page is treated as an anchor, and the second as a later page. The verdict is the judge's own, as if
there were no other page (`judge_pair`). All else that is shown only describes it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.minima import MINIMA_WORDS, equal_minima
from stream.fingerprint.parity import ONE
from stream.fingerprint.recipe import Recipe
from stream.fingerprint.row import NO_DIGEST, Status
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.simhash import bit_sums
from stream.fingerprint.sketch import SketchPairs
from stream.judge.explain.pair import PairPage, judge_pair
from stream.judge.explain.shingle_diff import Shingled, ShingleDiff, diff
from stream.judge.rule import Rule
from stream.messages.verdict import Verdict
from stream.messages.verdict_options import VerdictOptions
from stream.page_rows.page_fingerprinter import PageFingerprinter
from stream.pages.page import Page
from stream.tables.design import LONGEST_PREFIX
from stream.tables.reserves.keys import PAIRS, minima_of_reserve
from stream.text.segment import segment, units

Outcome: TypeAlias = Literal["duplicate", "recrawl", "unique", "insufficient"]
_OUTCOMES: Final[dict[Verdict, Outcome]] = {
    Verdict.DUPLICATE: "duplicate",
    Verdict.RECRAWL: "recrawl",
    Verdict.UNIQUE: "unique",
    Verdict.INSUFFICIENT: "insufficient",
}
FEATURES: Final = 12
"""Maximum number of features in each list."""


@dataclass(frozen=True, slots=True, eq=False)
class ExplainedPage:
    """One of the two pages, with as much as its source has. Only the fingerprint is required."""

    name: str
    fingerprint: int
    url: str | None = None
    url_digest: bytes = NO_DIGEST
    sketch: bytes | None = None
    text_hash: bytes | None = None
    tokens: int | None = None
    weights: dict[bytes, int] | None = None
    """Feature -> weight."""
    sums: NDArray[np.int64] | None = None
    """(width,): for each bit, the weight of features with a 1 minus that of features with a 0."""
    shingled: Shingled | None = None
    status: Status = Status.READY
    skipped: int = 0
    """Bit mask of the tables whose full bucket it did not enter as an anchor, and above these of the reserves
    that it did (rule 16)."""
    stored_id: int | None = None
    """Packed id of the page, if it is a page of the state directory in question."""
    share: float | None = None
    """Share of the page's visible text that is compared; None if only its text is known."""


class PageSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of a side."""

    name: str
    url: str | None
    fingerprint: str
    text_hash: str | None
    tokens: int | None
    features: int | None
    shingles: int | None
    share: float | None
    """Share of the page's visible text that is compared; None if only its text is known."""


class Bit(msgspec.Struct, frozen=True, kw_only=True):
    """A bit in which the fingerprints differ."""

    bit: int
    block: int | None
    """Block of the bit, if the tables index fingerprints."""
    margins: tuple[float | None, float | None]
    """Sum of the bit in the anchor and the page, as a share of the total weight, -1 to 1. Its sign is the
    bit."""


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a table brings the pages together, or a reserve that the anchor entered in place of a full
    pair, which is numbered after the tables."""

    table: int
    blocks: list[int]
    prefix_bits: int
    differing: list[int]
    """What differs in the prefix: bits of the fingerprint, or minima, counted from 0."""
    kept_out: bool
    """Whether the anchor is not in its bucket, which was full (rule 16)."""
    met: Literal["exact", "missed"]


class Feature(msgspec.Struct, frozen=True, kw_only=True):
    """A feature with its weights in the anchor and the page, as shares of their total weight."""

    feature: str
    weights: tuple[float, float]


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """The features of both fingerprints, heaviest first. Lists are truncated; counts are of all features."""

    shared: list[Feature]
    only_anchor: list[Feature]
    only_page: list[Feature]
    counts: tuple[int, int, int]
    """Numbers of shared features, of those only in the anchor, and of those only in the page."""
    cosine: float
    """Cosine of the weight vectors, whose angle SimHash estimates."""
    expected_distance: float
    """Expected Hamming distance of fingerprints at this angle: width * angle / pi."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A condition of the verdict."""

    name: Literal["text", "url", "tables", "distance", "similarity"]
    passed: bool
    reason: str


class StoredPage(msgspec.Struct, frozen=True, kw_only=True):
    """What a state directory has about a page."""

    id: str
    verdict: Literal["unique", "duplicate"]
    """`unique` for an anchor, else `duplicate`: what the verdict was, unless it was a `recrawl` that was
    judged again (rule 22)."""
    cluster: str
    """Id of the anchor of its cluster, which is its own if it is unique."""
    duplicate_of: str | None
    """URL of that anchor, if it is another page."""
    superseded: bool
    """Whether its anchor no longer matches pages, because a newer page of that URL took its place."""
    full_buckets: int
    """Number of full buckets that it did not enter as an anchor (rule 16)."""


class Candidacy(msgspec.Struct, frozen=True, kw_only=True):
    """How an anchor stands among the candidates of a page: the live anchors within the distance that share a
    bucket with it (rule 18)."""

    candidates: int
    place: int | None
    """Its place among them by rank, from 1; None if it is none of them."""
    compared: int
    """How many of them are compared, those of the least rank."""


class NearestAnchor(msgspec.Struct, frozen=True, kw_only=True):
    """The anchor that a unique page is nearest to."""

    url: str
    id: str
    similarity: float
    reason: str
    """Why the page is no duplicate of it."""


class StoredPair(msgspec.Struct, frozen=True, kw_only=True):
    """What a state directory makes of the two pages."""

    directory: str
    anchor: StoredPage | None
    """None for a page that is not stored. Recrawls and pages with too little text are not."""
    page: StoredPage | None
    verdict: Outcome | None
    """Verdict on the page there: the one that it has, or the one that it would get now. None if too little is
    known of the page."""
    named: str | None
    """URL of the anchor or baseline that this verdict names."""
    similarity: float | None
    """Its similarity with the page, if the verdict is one that the page would get."""
    joins: str | None
    """If this verdict would be `recrawl`, and the cluster of the page `named` has no live anchor any more:
    URL of the anchor that the page would join, that of `named` if it would become one (rule 22)."""
    nearest: NearestAnchor | None
    """The anchor that the page is nearest to, if it would be unique, and its verdict would name one."""
    later: bool
    """Whether the anchor is stored, and came after the page."""
    by_cluster: Explanation | None
    """How the page compares with the anchor of the cluster, if the first page is a duplicate itself."""
    candidacy: Candidacy | None
    """How the first page, or the anchor of its cluster, stands among the candidates of the page: of a page
    that is stored, among the older ones that are live now. None if the two are not compared by tables there,
    or if too little is known of the page."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The complete explanation, for JSON."""

    anchor: PageSummary
    page: PageSummary
    scheme: str
    mode: str
    width: int
    verdict: Outcome
    """Verdict on the page, if the anchor were the only page before it."""
    checks: list[Check]
    distance: int
    bits: list[Bit]
    tables: list[Probe]
    estimated_similarity: float | None
    exact_similarity: float | None
    """Jaccard similarity of the sets of shingles."""
    least_similarity: float | None
    same_text: bool | None
    features: Features | None
    shingles: ShingleDiff | None
    """What their shingles share, and do not, as text."""
    equal_minima: list[bool] | None
    """Which of their thirty minima are equal, if the tables index the first of these."""
    stored: StoredPair | None = None
    """What a state directory makes of them, if one was named."""


def side_of_page(name: str, page: Page, fingerprinter: PageFingerprinter) -> ExplainedPage:
    """Analyse a page. Raises PageError if its URL is malformed or it has no text."""
    url_key, content = fingerprinter.read_content(page)
    digest = fingerprinter.url_digest(url_key)
    extract = content.extract()
    side = side_of_text(name, page.url, extract.text, fingerprinter, digest)
    text_hash = fingerprinter.text_hash(fingerprinter.text(extract.text), extract.visible)
    return replace(side, share=extract.share, text_hash=text_hash)


def side_of_text(
    name: str, url: str | None, text: str, fingerprinter: PageFingerprinter, url_digest: bytes = NO_DIGEST
) -> ExplainedPage:
    """Analyse a text."""
    scheme = fingerprinter.scheme
    fingerprint = fingerprinter.text(text)
    normalised = fingerprinter.normalise(text)
    tokens = segment(normalised, scheme.segmenter, scheme.dictionary)
    recipe = Recipe(scheme, fingerprinter.seed)
    names, weights = recipe.weigh_features(normalised, tokens)
    hashes = recipe.hash(names, scheme.width) if names else np.zeros(0, np.uint64)
    return ExplainedPage(
        name=name,
        fingerprint=fingerprint.fingerprint,
        url=url,
        url_digest=url_digest,
        sketch=fingerprint.sketch,
        text_hash=fingerprint.text_hash,
        tokens=fingerprint.tokens,
        weights=dict(zip(names, weights.tolist(), strict=True)),
        sums=bit_sums(hashes, weights, scheme.width),
        shingled=Shingled.of(normalised, units(normalised), scheme.shingle),
        status=fingerprinter.status(fingerprint),
    )


def explain(
    anchor: ExplainedPage, page: ExplainedPage, scheme: Scheme, options: VerdictOptions
) -> Explanation:
    """Compare two pages as the judge would. Raises SettingsError if the options allow no tables."""
    rule = Rule(options, scheme)
    apart = anchor.fingerprint ^ page.fingerprint
    distance = apart.bit_count()
    minima = _equal_minima(anchor, page, options)
    tables = _tables(anchor, page, rule, minima)
    shingles = diff(anchor.shingled, page.shingled) if anchor.shingled and page.shingled else None
    estimated, exact = _similarities(anchor, page, scheme, shingles)
    least, counted = _least_similarity(anchor, page, rule)
    same_text = (
        anchor.text_hash == page.text_hash
        if anchor.text_hash is not None and page.text_hash is not None
        else None
    )
    near = _distance_check(distance, page, rule) if options.strict else None
    alike = None if least is None else _similarity_check(estimated, least, rule, counted=counted)
    shared = SAME_URL if is_same_url(anchor, page) else _tables_check(anchor, page, options, tables, minima)
    # To read: the verdict itself is that of `judge_pair`.
    conditions = [check for check in (shared, near, alike) if check is not None]
    return Explanation(
        anchor=_described(anchor, scheme),
        page=_described(page, scheme),
        scheme=scheme.id,
        mode=options.mode,
        width=scheme.width,
        verdict=verdict_on(anchor, page, rule),
        checks=_too_short(anchor, page, scheme) or conditions,
        distance=distance,
        bits=_bits(apart, anchor, page, scheme, options),
        tables=tables,
        estimated_similarity=estimated,
        exact_similarity=exact,
        least_similarity=least,
        same_text=same_text,
        features=_features(anchor, page, scheme),
        shingles=shingles,
        equal_minima=minima,
    )


def verdict_on(anchor: ExplainedPage, page: ExplainedPage, rule: Rule) -> Outcome:
    """Return the judge's verdict on the page. Outside strict mode, pages without sketches are not similar."""
    if (
        page.status != Status.INSUFFICIENT
        and not rule.options.strict
        and None in (anchor.sketch, page.sketch)
    ):
        return "unique"
    first, second = (
        PairPage(
            side.status,
            side.fingerprint,
            bytes(rule.scheme.sketch_bytes) if side.sketch is None else side.sketch,
            side.skipped,
        )
        for side in (anchor, page)
    )
    outcome: Outcome = _OUTCOMES[judge_pair(first, second, rule, same_url=is_same_url(anchor, page))]
    return outcome


def is_same_url(anchor: ExplainedPage, page: ExplainedPage) -> bool:
    """Whether the judge takes both for pages of one URL."""
    return anchor.url_digest == page.url_digest != NO_DIGEST


def _described(side: ExplainedPage, scheme: Scheme) -> PageSummary:
    return PageSummary(
        name=side.name,
        url=side.url,
        fingerprint=f"{side.fingerprint:0{scheme.width // 4}x}",
        text_hash=side.text_hash.hex() if side.text_hash is not None else None,
        tokens=side.tokens,
        features=len(side.weights) if side.weights is not None else None,
        shingles=len(set(side.shingled.shingles)) if side.shingled is not None else None,
        share=None if side.share is None else round(side.share, 3),
    )


def _equal_minima(anchor: ExplainedPage, page: ExplainedPage, options: VerdictOptions) -> list[bool] | None:
    """Return for each of the minima whether it is equal in both pages, or None if the tables index no minima
    or they are unknown."""
    if options.strict or anchor.sketch is None or page.sketch is None:
        return None
    words = (np.frombuffer(each, "<u8")[-MINIMA_WORDS:] for each in (anchor.sketch, page.sketch))
    return equal_minima(*words)


def _ones(value: int) -> list[int]:
    return [bit for bit in range(value.bit_length()) if value >> bit & 1]


def _tables(anchor: ExplainedPage, page: ExplainedPage, rule: Rule, minima: list[bool] | None) -> list[Probe]:
    options, design = rule.options, rule.design()
    if minima is None and not options.strict:
        return []
    apart, probes = anchor.fingerprint ^ page.fingerprint, []
    for table, mask in enumerate(design.prefix_masks[:, 0].tolist()):
        differing = (
            _ones(apart & mask)
            if minima is None
            else [minimum for minimum in design.subsets[table].tolist() if not minima[minimum]]
        )
        kept_out = bool(anchor.skipped >> table & 1)
        probes.append(
            Probe(
                table=table,
                blocks=design.subsets[table].tolist(),
                prefix_bits=int(design.prefix_bits[table]),
                differing=differing,
                kept_out=kept_out,
                met="missed" if kept_out or differing else "exact",
            )
        )
    if minima is not None:
        further = any(probe.kept_out and not probe.differing for probe in probes)
        probes += [_reserve(reserve, minima, further=further) for reserve in _ones(anchor.skipped >> PAIRS)]
    return probes


def _reserve(reserve: int, minima: list[bool], *, further: bool) -> Probe:
    """A reserve that the anchor entered in place of a full pair. The page looks `further` if the anchor
    stayed out of a pair that they share."""
    blocks = minima_of_reserve(reserve)
    differing = [minimum for minimum in blocks if not minima[minimum]]
    return Probe(
        table=PAIRS + reserve,
        blocks=blocks,
        prefix_bits=LONGEST_PREFIX,
        differing=differing,
        kept_out=False,
        met="missed" if differing or not further else "exact",
    )


def _bits(
    apart: int, anchor: ExplainedPage, page: ExplainedPage, scheme: Scheme, options: VerdictOptions
) -> list[Bit]:
    design = Rule(options, scheme).design() if options.strict else None

    def margin(side: ExplainedPage, bit: int) -> float | None:
        if side.sums is None or side.weights is None:
            return None
        return round(int(side.sums[bit]) / max(sum(side.weights.values()), 1), 5)

    return [
        Bit(
            bit=bit,
            block=int(design.block_of_bit[bit]) if design is not None else None,
            margins=(margin(anchor, bit), margin(page, bit)),
        )
        for bit in reversed(_ones(apart))
    ]


def _least_similarity(anchor: ExplainedPage, page: ExplainedPage, rule: Rule) -> tuple[float | None, bool]:
    """Return the least similarity that suffices, and whether that of the pages is counted."""
    if rule.options.strict:
        return None, False
    if anchor.sketch is None or page.sketch is None:
        return rule.published(rule.least_similarity), False
    pair = _pair(anchor.sketch, page.sketch)
    return rule.published(int(rule.least(pair)[0])), bool(rule.counted(pair)[0])


def _pair(a: bytes, b: bytes) -> SketchPairs:
    return SketchPairs.of(*(np.frombuffer(each, "<u8").astype(np.uint64) for each in (a, b)))


def _similarities(
    anchor: ExplainedPage, page: ExplainedPage, scheme: Scheme, shingles: ShingleDiff | None
) -> tuple[float | None, float | None]:
    estimated = exact = None
    if anchor.sketch is not None and page.sketch is not None:
        rule = Rule(VerdictOptions(), scheme)  # compares sketches in strict mode too
        estimated = rule.published(int(rule.similarities(_pair(anchor.sketch, page.sketch))[0]))
    if shingles is not None:
        union = sum(shingles.counts)
        exact = round(shingles.counts[0] / union, 4) if union else None
    return estimated, exact


def _features(anchor: ExplainedPage, page: ExplainedPage, scheme: Scheme) -> Features | None:
    a, b = anchor.weights, page.weights
    if not a or not b:
        return None
    totals = sum(a.values()), sum(b.values())

    def listed(names: set[bytes]) -> list[Feature]:
        shares = {name: (a.get(name, 0) / totals[0], b.get(name, 0) / totals[1]) for name in names}
        heaviest = sorted(names, key=lambda name: (-max(shares[name]), name))[:FEATURES]
        return [
            Feature(
                feature=name.decode(errors="replace"),
                weights=(round(shares[name][0], 5), round(shares[name][1], 5)),
            )
            for name in heaviest
        ]

    shared, only_a, only_b = a.keys() & b.keys(), a.keys() - b.keys(), b.keys() - a.keys()
    dot = sum(a[name] * b[name] for name in shared)
    lengths = sum(w * w for w in a.values()) * sum(w * w for w in b.values())
    cosine = min(dot / lengths**0.5, 1.0) if lengths else 0.0
    return Features(
        shared=listed(shared),
        only_anchor=listed(only_a),
        only_page=listed(only_b),
        counts=(len(shared), len(only_a), len(only_b)),
        cosine=round(cosine, 5),
        expected_distance=round(scheme.width * float(np.arccos(cosine)) / np.pi, 2),
    )


def _too_short(anchor: ExplainedPage, page: ExplainedPage, scheme: Scheme) -> list[Check]:
    """Return a failed check for each page with too little text."""
    least = scheme.minimum_tokens
    return [
        Check(
            name="text",
            passed=False,
            reason=f"{side.name} has too few tokens: {side.tokens}; at least {least} are required",
        )
        for side in (anchor, page)
        if side.status == Status.INSUFFICIENT
    ]


SAME_URL: Final = Check(
    name="url", passed=True, reason="both have the same URL, so they are compared without tables"
)


def _tables_check(
    anchor: ExplainedPage,
    page: ExplainedPage,
    options: VerdictOptions,
    tables: list[Probe],
    minima: list[bool] | None,
) -> Check | None:
    """Return whether a table brings the pages together, or None if there are no tables."""
    if not tables:
        return None
    met = [table for table in tables if table.met == "exact"]
    if minima is not None:
        equal = sum(not table.differing for table in tables if table.table < PAIRS)
        are = "is" if equal == 1 else "are"
        reason = f"{equal} of the {PAIRS} pairs of minima that bring pages together {are} equal"
    elif met:
        reason = f"{len(met)} of {len(tables)} tables bring them together: they have the same prefix there"
    else:
        fewest = min(len(table.differing) for table in tables)
        bits = "a bit" if fewest == 1 else f"{fewest} bits"
        reason = f"no table brings them together: every prefix differs in {bits} or more"
    full = [table for table in tables if table.kept_out and not table.differing]
    if full:
        buckets = "1 full bucket" if len(full) == 1 else f"{len(full)} full buckets"
        reason += f"; {anchor.name} was kept out of {buckets} {'' if met else '(all) '}that they share"
        if reserves := sum(table.table >= PAIRS and table.met == "exact" for table in tables):
            reason += (
                f", and is in {'a reserve' if reserves == 1 else f'{reserves} reserves'} that they share"
            )
    return Check(name="tables", passed=bool(met), reason=reason)


def _distance_check(distance: int, page: ExplainedPage, rule: Rule) -> Check:
    largest, width = rule.largest_distance(page.status), rule.scheme.width
    return Check(
        name="distance",
        passed=distance <= largest,
        reason=f"the fingerprints differ in {distance} of {width} bits; at most {largest} are allowed",
    )


def _similarity_check(similarity: float | None, least: float, rule: Rule, *, counted: bool) -> Check:
    how = "counted" if counted else "estimated"
    value = "the similarity is unknown" if similarity is None else f"{how} similarity {similarity}"
    limit = rule.describe_limit(round((similarity or 0) * ONE), round(least * ONE))
    return Check(
        name="similarity",
        passed=similarity is not None and similarity >= least,
        reason=f"{value}; at least {limit} is required",
    )

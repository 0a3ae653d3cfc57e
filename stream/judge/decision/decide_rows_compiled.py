"""The row-by-row loop of a decision, compiled: what depends on the order of a batch's pages.

These are a URL's baselines, superseded anchors, and anchors of this batch. All else is computed before: which
stored anchors a page is compared with, how similar they are, and from which row on they are dead.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.compiled import borrowing, compiled, inlined
from stream.fingerprint.distance_compiled import hamming_distance
from stream.fingerprint.parity_similarity_compiled import (
    Estimator,
    both_listed,
    estimator,
    similarity_of,
)
from stream.judge.decision.batch_anchors import Buckets, enter, leave, looks_around, members_near
from stream.judge.decision.nearest import cutoff, youngest_of
from stream.judge.ids import NO_PAGE
from stream.judge.rule import NO_SIMILARITY, UNLIKE, Rule
from stream.judge.state.page_numbers import NO_NUMBER
from stream.messages.verdict import Change, Verdict
from stream.tables.arrays import I16, I32, I64, U8, U64
from stream.tables.search.packed_pairs import Integer
from stream.tables.search.rank import RANKS

NO_DISTANCE: Final = -1
FINGERPRINTS_A_COMPARISON: Final = 8
"""Number of anchors that count as one comparison if only their fingerprints are compared."""
NOBODY, BASELINE, STORED, EARLIER = range(4)
"""What a page is compared with in its verdict: its URL's baseline, a stored anchor, a row of its batch."""
ALIVE: Final = 2**62
"""The row at which an anchor dies that no page of the batch supersedes."""
_OTHER, _SAME, _ORPHAN = range(3)
"""How a page compares with the baselines of its URL: it is like none of them; it is like one; or that is the
newest one, and has no live anchor (rule 22)."""
_UNIQUE, _DUPLICATE, _RECRAWL = int(Verdict.UNIQUE), int(Verdict.DUPLICATE), int(Verdict.RECRAWL)
_NEW, _CHANGED, _UNCHANGED = int(Change.NEW), int(Change.CHANGED), int(Change.UNCHANGED)


class FingerprintedRows(NamedTuple):
    """The n rows of a batch that have a fingerprint, and how they compare with the stored baselines of their
    URLs; in this file, a row is one of them."""

    place: I64
    """Where each row stands in the batch."""
    page: I64
    """Of all rows of the batch."""
    sketch: U64
    """Of all rows of the batch: (its rows, lanes)."""
    within: I64
    """Largest distance of a near-duplicate."""
    url: I64
    """Number of the URL, below n: rows of one URL have the same."""
    baseline: I64
    """Index, among b stored baselines, of the newest one that the page is like; else of its URL's newest, -1
    for none. This and the following have a second line, (2, n), of a URL whose newest one is not stored any
    more, as a row of the batch took its place (rule 22)."""
    newer: I64
    """Number of stored baselines of the URL that are newer than that one."""
    similar: NDArray[np.bool_]
    """Whether the page is like that baseline, at this distance and similarity."""
    distance: I64
    similarity: I64


class Baselines(NamedTuple):
    """The b stored baselines of a batch's URLs."""

    page: I64
    cluster: I64
    anchor: I64
    """Its number, -1 where it is none, or dead."""
    dies: I64
    """Of the newest baseline of a URL, the row from which on its cluster has no live anchor; ALIVE for none,
    -1 if it had none before."""
    buckets: I64
    """Those of the batch's crowded buckets that it is in, baseline by baseline, up to `ends` (b + 1,)."""
    ends: I64


class StoredCandidates(NamedTuple):
    """m pairs of a row and a stored anchor, by age in each row: those that it is compared with (rule 18), and
    more if there are more."""

    ends: I64
    """Where those of each row end (n + 1,)."""
    page: I64
    distance: U8
    rank: U8
    reserve: NDArray[np.bool_]
    """Whether the two share reserves alone: a candidate only if the row looks there."""
    similarity: I64
    """Plus UNLIKE if it does not suffice."""
    dies: I64
    """The row from which on the anchor is dead."""


class Limits(NamedTuple):
    """The limits of near-duplicates, and how many pages are compared."""

    least_similarity: int
    least_listed: int
    evidence: int
    strict: bool
    compared: int
    baselines: int
    sketches: Estimator

    @classmethod
    def of(cls, rule: Rule) -> Limits:
        """Return the limits of a rule."""
        return cls(
            rule.least_similarity,
            rule.least_listed,
            rule.evidence,
            rule.options.strict,
            rule.compared,
            rule.options.baselines,
            estimator(rule.scheme),
        )


class Given(NamedTuple):
    """What is computed before the loop."""

    rows: FingerprintedRows
    baselines: Baselines
    stored: StoredCandidates
    limits: Limits


class VerdictColumns(NamedTuple):
    """The verdicts of a batch. Every column has an entry for each of its rows, with a fingerprint or not."""

    verdict: U8
    change: U8
    cluster: I64
    """Packed id of the cluster's anchor, NO_PAGE for none."""
    other: I64
    """Packed id of the page that `distance` and `similarity` compare with, or of a unique page the nearest
    one; NO_PAGE for none."""
    distance: I16
    """NO_DISTANCE for none, and of a unique page."""
    similarity: I32
    """In ten-thousandths, NO_SIMILARITY for none."""
    number: I64
    """Number of `other` among anchors or, for a recrawl of a duplicate, among duplicates; NO_NUMBER for
    none."""
    anchor: I64
    """For a recrawl whose cluster is not the page `other`, the number of the cluster's anchor, NO_LONGER_LIVE
    if that is superseded; NO_NUMBER for all other rows."""
    stored_as: U8
    """UNIQUE where the row's page becomes an anchor, DUPLICATE where it becomes a baseline only, 0 where it
    is not stored."""

    @classmethod
    def blank(cls, n: int) -> VerdictColumns:
        """Return columns for n rows, without verdicts."""
        return cls(
            verdict=np.zeros(n, np.uint8),
            change=np.zeros(n, np.uint8),
            cluster=np.full(n, NO_PAGE, np.int64),
            other=np.full(n, NO_PAGE, np.int64),
            distance=np.full(n, NO_DISTANCE, np.int16),
            similarity=np.full(n, NO_SIMILARITY, np.int32),
            number=np.full(n, NO_NUMBER, np.int64),
            anchor=np.full(n, NO_NUMBER, np.int64),
            stored_as=np.zeros(n, np.uint8),
        )


class Course(NamedTuple):
    """What the loop notes beside verdicts, about n rows."""

    kind: U8
    """What `other` is: BASELINE, STORED, EARLIER or NOBODY; `which` is its index there."""
    which: I64
    home: U8
    """Of a row that is stored, what the anchor of its cluster is: STORED, or EARLIER for a row of this batch,
    possibly itself; `anchor` is its index there."""
    anchor: I64
    gone: NDArray[np.bool_]
    """Whether the row became an anchor, and was superseded."""
    superseded: U8
    """BASELINE or EARLIER where the row's page supersedes the anchor of its URL; else NOBODY."""
    before: I64
    """The row of this batch that was its URL's newest baseline, or of an orphan the one behind that; -1 for
    none. Of rows that became a baseline."""
    latest: I64
    """The last row that became the baseline of each URL, by its number (n,)."""
    replaced: NDArray[np.bool_]
    """Whether an orphan took the place of the URL's newest stored baseline (n,)."""
    full: NDArray[np.bool_]
    """Whether none of the row's pairs was open when it was compared (rule 16)."""
    cut: NDArray[np.bool_]
    """Whether it had more candidates than are compared (rule 18)."""

    @classmethod
    def blank(cls, rows: int) -> Course:
        """Return columns for n rows of which none is decided."""
        return cls(
            kind=np.zeros(rows, np.uint8),
            which=np.zeros(rows, np.int64),
            home=np.zeros(rows, np.uint8),
            anchor=np.zeros(rows, np.int64),
            gone=np.zeros(rows, np.bool_),
            superseded=np.zeros(rows, np.uint8),
            before=np.full(rows, -1, np.int64),
            latest=np.full(rows, -1, np.int64),
            replaced=np.zeros(rows, np.bool_),
            full=np.zeros(rows, np.bool_),
            cut=np.zeros(rows, np.bool_),
        )


class BestMatch(NamedTuple):
    """The best candidate so far: the most similar, of equally similar the nearest, of those the oldest."""

    kind: np.int64
    which: np.int64
    page: np.int64
    distance: np.int64
    similarity: np.int64


@compiled
def _best_match(
    kind: Integer, which: Integer, page: Integer, distance: Integer, similarity: Integer
) -> BestMatch:
    """Convert all fields to one type, as the compiler requires."""
    return BestMatch(
        np.int64(kind), np.int64(which), np.int64(page), np.int64(distance), np.int64(similarity)
    )


@borrowing
def settle(
    given: Given, buckets: Buckets, verdicts: VerdictColumns, course: Course, first: int, end: int, most: int
) -> tuple[int, int]:
    """Decide the rows [first, end), or as many as take `most` comparisons, after those before `first`.

    Returns the row after the last decided one, and the number of comparisons.
    """
    (rows, _, stored, limits), comparisons = given, 0
    full, cut = course.full, course.cut
    for row in range(first, end):
        if comparisons > most:
            return row, comparisons
        compares = _compare_url(row, given, buckets, verdicts, course)
        if compares == _SAME:
            continue
        further, full[row] = looks_around(row, buckets)
        best, cut[row], compared = _best_anchor(row, further, rows, stored, buckets, limits)
        comparisons += compared
        place, joins = rows.place[row], best.similarity >= NO_SIMILARITY
        if compares == _ORPHAN:
            verdicts.cluster[place] = best.page if joins else rows.page[place]
        elif joins:
            verdicts.verdict[place] = _DUPLICATE
            _write_match(row, place, verdicts, course, best, best.page)
        else:
            similarity = best.similarity - UNLIKE
            if similarity >= limits.evidence:
                nearest = _best_match(best.kind, best.which, best.page, NO_DISTANCE, similarity)
                _write_match(row, place, verdicts, course, nearest, rows.page[place])
            verdicts.verdict[place], verdicts.cluster[place] = _UNIQUE, rows.page[place]
        if joins:
            verdicts.stored_as[place] = _DUPLICATE
            course.home[row], course.anchor[row] = best.kind, best.which
        else:
            verdicts.stored_as[place] = _UNIQUE
            course.home[row], course.anchor[row] = EARLIER, row
            enter(row, buckets)
        course.latest[rows.url[row]] = row
    return end, comparisons


@inlined
def _write_match(
    row: int, place: np.int64, verdicts: VerdictColumns, course: Course, other: BestMatch, cluster: np.int64
) -> None:
    verdicts.other[place], verdicts.cluster[place] = other.page, cluster
    verdicts.distance[place], verdicts.similarity[place] = other.distance, other.similarity
    course.kind[row], course.which[row] = other.kind, other.which


@inlined
def _compare_url(row: int, given: Given, buckets: Buckets, verdicts: VerdictColumns, course: Course) -> int:
    """Compare the page with its URL's baselines. If it is like one of them, write its verdict, of an orphan
    without its cluster. Otherwise, mark the newest baseline as superseded."""
    rows, baselines, stored, limits = given
    place, url = rows.place[row], rows.url[row]
    latest = course.latest[url]
    earlier, newer = latest, 0
    while earlier >= 0 and newer < limits.baselines:
        distance = hamming_distance(buckets.fingerprints, row, buckets.fingerprints, earlier)
        if distance <= rows.within[row]:
            similarity = _similarity(row, earlier, rows, limits)
            if similarity >= NO_SIMILARITY:
                before = rows.place[earlier]
                other = _best_match(EARLIER, earlier, rows.page[before], distance, similarity)
                _write_match(row, place, verdicts, course, other, verdicts.cluster[before])
                verdicts.verdict[place], verdicts.change[place] = _RECRAWL, _UNCHANGED
                if newer or not _is_orphan(row, earlier, stored, course):
                    return _SAME
                course.before[row] = course.before[earlier]
                return _ORPHAN
        earlier, newer = course.before[earlier], newer + 1
    line = np.int64(course.replaced[url])
    baseline, age = rows.baseline[line, row], rows.newer[line, row]
    if baseline >= 0 and rows.similar[line, row] and newer + age < limits.baselines:
        distance, similarity = rows.distance[line, row], rows.similarity[line, row]
        other = _best_match(BASELINE, baseline, baselines.page[baseline], distance, similarity)
        _write_match(row, place, verdicts, course, other, baselines.cluster[baseline])
        verdicts.verdict[place], verdicts.change[place] = _RECRAWL, _UNCHANGED
        if latest >= 0 or age or baselines.dies[baseline] > row:
            return _SAME
        course.replaced[url] = True
        return _ORPHAN
    course.before[row] = latest
    verdicts.change[place] = _NEW if latest < 0 and baseline < 0 else _CHANGED
    if latest >= 0:
        if verdicts.stored_as[rows.place[latest]] == _UNIQUE:
            leave(latest, buckets)
            course.gone[latest] = True
            course.superseded[row] = EARLIER
    elif baseline >= 0 and baselines.anchor[baseline] >= 0:
        for bucket in baselines.buckets[baselines.ends[baseline] : baselines.ends[baseline + 1]]:
            buckets.crowd[bucket] -= 1
        course.superseded[row] = BASELINE
    return _OTHER


@inlined
def _is_orphan(row: int, member: np.int64, stored: StoredCandidates, course: Course) -> bool:
    """Whether the cluster of the earlier row `member` has no live anchor at the turn of `row`."""
    anchor = course.anchor[member]
    if course.home[member] == STORED:
        return bool(stored.dies[anchor] <= row)
    return bool(course.gone[anchor])


@inlined
def _is_candidate(row: int, pair: int, further: bool, within: np.int64, stored: StoredCandidates) -> bool:
    """Whether a stored anchor is one at the turn of `row`, which may look `further`."""
    if stored.reserve[pair] and not further:
        return False
    return bool(stored.dies[pair] > row and stored.distance[pair] <= within)


@inlined
def _best_anchor(
    row: int,
    further: bool,
    rows: FingerprintedRows,
    stored: StoredCandidates,
    buckets: Buckets,
    limits: Limits,
) -> tuple[BestMatch, np.bool_, int]:
    """Return the best anchor that the page is compared with, in reserves if it looks `further`, whether there
    are more candidates than are compared, and the number of comparisons. The best one's similarity is less
    than NO_SIMILARITY if no anchor is similar enough."""
    within = rows.within[row]
    first, end = stored.ends[row], stored.ends[row + 1]
    alive, greatest, below = np.int64(0), np.int64(-1), np.int64(-1)
    for pair in range(first, end):
        if _is_candidate(row, pair, further, within, stored):
            alive += 1
            rank = np.int64(stored.rank[pair])
            below = max(below, min(rank, greatest))
            greatest = max(greatest, rank)
    # All anchors of this batch are younger than those, of which there is one more than are compared at most.
    reach = RANKS - 1 if alive <= limits.compared else below - 1
    count, looked = members_near(row, further, within, reach, limits.compared + 1, buckets)
    near, apart, ranks = buckets.nearby[:count], buckets.apart[:count], buckets.ranks[:count]
    last, left, cut = RANKS, 0, alive + count > limits.compared
    if cut:
        at_rank = buckets.at_rank
        at_rank[:] = 0
        for pair in range(first, end):
            if _is_candidate(row, pair, further, within, stored):
                at_rank[stored.rank[pair]] += 1
        for rank in ranks:
            at_rank[rank] += 1
        last, left = cutoff(at_rank, limits.compared)
    best = _best_match(NOBODY, 0, NO_PAGE, NO_DISTANCE, 2 * UNLIKE)
    for pair in range(first, end):
        bits, rank = np.int64(stored.distance[pair]), stored.rank[pair]
        if (
            rank > last
            or (rank == last and not left)
            or not _is_candidate(row, pair, further, within, stored)
        ):
            continue
        left -= rank == last
        similarity = stored.similarity[pair]
        if similarity > best.similarity or (similarity == best.similarity and bits < best.distance):
            best = _best_match(STORED, pair, stored.page[pair], bits, similarity)
    youngest, compared = youngest_of(ranks, near, last, left), 0
    for i in range(count):
        if ranks[i] < last or (ranks[i] == last and near[i] <= youngest):
            near[compared], apart[compared] = near[i], apart[i]
            compared += 1
    if not compared:
        return best, cut, count + looked // FINGERPRINTS_A_COMPARISON
    for i in range(compared):
        member, bits = near[i], apart[i]
        similarity = _similarity(row, member, rows, limits)
        if similarity < best.similarity:
            continue
        as_good = similarity == best.similarity and bits == best.distance
        if (
            similarity > best.similarity
            or bits < best.distance
            or (as_good and best.kind == EARLIER and member < best.which)
        ):
            best = _best_match(EARLIER, member, rows.page[rows.place[member]], bits, similarity)
    return best, cut, count + looked // FINGERPRINTS_A_COMPARISON


@inlined
def _similarity(row: int, other: Integer, rows: FingerprintedRows, limits: Limits) -> np.int64:
    """Return the similarity of two rows, plus UNLIKE if it does not suffice."""
    if limits.strict:
        return np.int64(NO_SIMILARITY)
    place, of_other = rows.place[row], rows.place[other]
    similarity = np.int64(similarity_of(rows.sketch, place, rows.sketch, of_other, limits.sketches))
    least = limits.least_similarity
    if both_listed(rows.sketch, place, rows.sketch, of_other, limits.sketches):
        least = limits.least_listed
    return similarity if similarity >= least else similarity + UNLIKE

"""Decides the verdicts of a batch of pages, with the same result as deciding them one by one.

Candidates, distances and similarities are computed for the whole batch at once. The loop over rows
(`stream.judge.decision.decide_rows_compiled`) only handles what depends on order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.row import FINGERPRINTED, Status
from stream.judge.batch import Batch
from stream.judge.decision.batch_anchors import CrowdedBuckets, StoredBuckets, shared_buckets
from stream.judge.decision.bucket_collisions import Collisions, collisions
from stream.judge.decision.candidates_compared import Compared, FingerprintedPages, compare_in_parts
from stream.judge.decision.decide_rows_compiled import (
    ALIVE,
    BASELINE,
    EARLIER,
    FINGERPRINTS_A_COMPARISON,
    NOBODY,
    STORED,
    Baselines,
    Course,
    Given,
    Limits,
    StoredCandidates,
    VerdictColumns,
    settle,
)  # fmt: skip
from stream.judge.decision.nearest import Nearest
from stream.judge.decision.recrawls import UrlBaselines, compare_baselines
from stream.judge.rule import UNLIKE, Rule
from stream.judge.state.page_numbers import NO_NUMBER, own_numbers
from stream.judge.state.state import State
from stream.messages.byte_strings import StringColumn
from stream.messages.decision import NO_LONGER_LIVE
from stream.messages.verdict import CLUSTERED, Verdict
from stream.tables.arrays import is_among
from stream.tables.reserves.keys import keys_of_reserves
from stream.tables.search.prefixes_compiled import keys_of
from stream.tables.search.result import ProbedReserves

THREADS = 2
"""Number of search threads. More would compete with workers and the broker on a small machine."""
FEW = 256
"""Number of rows up to which a single thread searches. Handing work to others takes up to a millisecond if
the GIL is contended."""
SEARCH_ROWS = 4096
"""Rows per search. With 1,024, a batch of 32,768 takes 40 ms more of CPU time, because two threads contend
for the GIL. With spam, a row has up to `bucket_cap` candidates in every probed bucket."""
MOST: Final = 1 << 24
"""Bound on the near candidates of a batch, counted separately for stored anchors and for those of the batch.
When it is exceeded, the remaining records are left to the next batch. It amounts to some seconds of one core;
ordinary batches stay far below."""
TURN_ROWS: Final = 1024
"""Rows between reports of progress."""


@dataclass(frozen=True, slots=True)
class Supersession:
    """A superseded anchor, and the row of the batch whose page replaced it."""

    row: int
    anchor: int
    page: int
    url: str


@dataclass(slots=True, eq=False)
class BatchVerdicts:
    """Verdicts of a batch of n rows."""

    columns: VerdictColumns
    other_url: StringColumn
    """URL of the page that each row names: of `columns.other`."""
    full: NDArray[np.bool_]
    """Whether none of the pairs of each row's page was open when it was compared (n,)."""
    cut: NDArray[np.bool_]
    """Whether the page had more candidates than are compared (n,)."""
    superseded: list[Supersession] = field(default_factory=list)
    skipped: dict[int, int] = field(default_factory=dict)
    """Row -> bit mask of the tables whose full bucket its anchor did not enter, and above these of the
    reserves that it entered."""
    candidates: int = 0
    """Number of candidates that the tables returned, for metrics."""
    verified: int = 0
    """Number of candidates that were similar enough."""

    def __len__(self) -> int:
        return len(self.columns.verdict)

    def up_to(self, end: int) -> BatchVerdicts:
        """Return the verdicts of the rows before `end`."""
        return replace(
            self,
            columns=VerdictColumns._make(column[:end] for column in self.columns),
            other_url=self.other_url.take(np.arange(end)),
            full=self.full[:end],
            cut=self.cut[:end],
            superseded=[each for each in self.superseded if each.row < end],
            skipped={row: mask for row, mask in self.skipped.items() if row < end},
        )


@dataclass(frozen=True, slots=True)
class Effort:
    """A bound on the work per batch, and a callback for progress."""

    most: int = sys.maxsize
    """Bound on near candidates, see `MOST`."""
    on_iteration: Callable[[], None] = lambda: None
    """Called regularly, from any thread, to report progress."""
    url_bytes: int = sys.maxsize
    """Bound on the bytes of the URLs that verdicts and cluster changes name beside the pages' own, which may
    be larger than a whole row."""


def decide(
    batch: Batch, state: State, rule: Rule, ends: NDArray[np.int64], effort: Effort | None = None
) -> BatchVerdicts:
    """Decide the verdicts of `batch` against `state`, without changing either.

    `ends` are the ends of the journal records, as rows of the batch. The rows of the first record are always
    decided. Of the other records, as many are decided as the effort allows.
    """
    full, cut = np.zeros((2, len(batch)), np.bool_)
    judged = BatchVerdicts(VerdictColumns.blank(len(batch)), StringColumn.none(len(batch)), full, cut)
    judged.columns.verdict[batch.status == Status.REJECTED] = Verdict.REJECTED
    judged.columns.verdict[batch.status == Status.INSUFFICIENT] = Verdict.INSUFFICIENT
    ready = np.flatnonzero(is_among(batch.status, FINGERPRINTED))
    if not ready.size:
        return judged
    least = int(np.searchsorted(ready, ends[0])) if len(ends) else 0
    end = _Pass(batch, ready, state, rule, judged, effort or Effort(), least).run()
    if end == len(batch):
        return judged
    return judged.up_to(int(ends[np.searchsorted(ends, end, "right") - 1]))


class _Part(NamedTuple):
    """Stored candidates of the rows from `first` on, compared with them."""

    first: int
    pairs: Compared


class _Searched(NamedTuple):
    """The candidates of the first `rows` rows of a search, in parts."""

    rows: int
    parts: list[_Part]
    candidates: int
    verified: int


class _Pass:
    """Decides one batch. Rows are those with a fingerprint, counted from 0, at `ready` in the batch."""

    def __init__(
        self,
        batch: Batch,
        ready: NDArray[np.int64],
        state: State,
        rule: Rule,
        judged: BatchVerdicts,
        effort: Effort,
        least: int,
    ) -> None:
        """At least the first `least` rows are judged, whatever the effort."""
        self.batch, self.state, self.rule, self.judged, self.effort = batch, state, rule, judged, effort
        self.ready, self.least, self.comparisons = ready, least, 0

    def run(self) -> int:
        """Judge row by row. Return the row of the batch before which all rows are judged."""
        words = self.rule.table_words(self.batch.fingerprint[self.ready], self.batch.sketch[self.ready])
        keys = keys_of(words, self.state.design.pieces)
        colliding = collisions(keys)
        urls, searched = self._search_all(colliding)
        rows = sum(each.rows for each in searched)
        if rows < len(self.ready):
            colliding = collisions(keys[:rows])
        parts = [part for each in searched for part in each.parts]
        self.judged.candidates = sum(each.candidates for each in searched)
        self.judged.verified = sum(each.verified for each in searched)
        buckets, crowded = shared_buckets(
            colliding,
            words[:rows],
            self.batch.fingerprint[self.ready[:rows]],
            self._stored_buckets(parts),
            None if self.rule.options.strict else self.rule.options.bucket_cap,
        )
        course = Course.blank(len(self.ready))
        given = Given(
            urls.rows,
            self._baselines(urls, crowded, buckets.pairs),
            self._stored_candidates(parts, urls.dying),
            Limits.of(self.rule),
        )
        row = self.comparisons = 0
        while row < rows:
            self.effort.on_iteration()
            turn = min(row + TURN_ROWS, rows)
            if row < self.least:
                turn, most = min(turn, self.least), sys.maxsize
            elif (most := self.effort.most - self.comparisons) < 0:
                break
            row, comparisons = settle(given, buckets, self.judged.columns, course, row, turn, most)
            self.comparisons += comparisons
            if row < turn:
                break
        others = self._other_bytes(row, course, urls, parts)
        row = max(min(self.least, row), int(np.searchsorted(others, self.effort.url_bytes, "right")))
        self._write_down(row, course, urls, parts, buckets.skipped)
        return int(self.ready[row]) if row < len(self.ready) else len(self.batch)

    def _search_all(self, colliding: Collisions) -> tuple[UrlBaselines, list[_Searched]]:
        starts, entering = range(0, len(self.ready), SEARCH_ROWS), None
        if self.rule.reserves:
            entering = colliding.entering_with.reshape(len(self.ready), -1)
        if len(self.ready) <= FEW:
            urls = compare_baselines(self.batch, self.ready, self.state, self.rule)
            return urls, [self._search(start, entering, lambda: urls.dying) for start in starts]
        # Compiled loops and RocksDB let go of the GIL: two threads are nearly twice as fast as one.
        with ThreadPoolExecutor(THREADS, "decide") as pool:
            reading = pool.submit(compare_baselines, self.batch, self.ready, self.state, self.rule)
            searched = list(
                pool.map(lambda start: self._search(start, entering, lambda: reading.result().dying), starts)
            )
        short = next((i for i, each in enumerate(searched) if each.rows < SEARCH_ROWS), len(searched))
        return reading.result(), searched[: short + 1]

    def _search(
        self, start: int, entering: NDArray[np.int64] | None, dying: Callable[[], Nearest]
    ) -> _Searched:
        """Find and compare stored candidates of the rows from `start` on. `dying` may wait for baselines."""
        batch, rows = self.batch, self.ready[start : start + SEARCH_ROWS]
        searched = _Searched(len(rows), [], 0, 0)
        # The first part is searched whichever thread comes first.
        if start and self.comparisons > self.effort.most and start >= self.least:
            return searched._replace(rows=0)
        candidates = verified = 0
        pages = FingerprintedPages(batch.fingerprint[rows], batch.sketch[rows], batch.status[rows])
        some = None if entering is None else entering[start : start + SEARCH_ROWS]
        wanted = lambda: dying().from_row(start)  # noqa: E731
        for first, pairs in compare_in_parts(self.state, self.rule, pages, wanted, some):
            searched.parts.append(_Part(start + first, pairs))
            sizes, comparisons = pairs.candidates.bucket_sizes, pairs.returned
            if sizes is not None:
                members = int(sizes.sum() + pairs.candidates.reserves.sizes.sum())
                comparisons = max(comparisons, members // FINGERPRINTS_A_COMPARISON)
            candidates += pairs.returned
            verified += int(np.count_nonzero(pairs.similar))
            self.comparisons += comparisons  # two threads may lose some, which does no harm
            self.effort.on_iteration()
            searched_rows = first + len(pairs.ends)
            if self.comparisons > self.effort.most and start + searched_rows >= self.least:
                searched = searched._replace(rows=searched_rows)
                break
        return searched._replace(candidates=candidates, verified=verified)

    def _stored_buckets(self, parts: list[_Part]) -> StoredBuckets | None:
        searched = [(part.first, part.pairs.candidates) for part in parts]
        sizes = [each.bucket_sizes for _, each in searched if each.bucket_sizes is not None]
        if not sizes:
            return None
        reserves = ProbedReserves.joined((first, each.reserves) for first, each in searched)
        return StoredBuckets(np.concatenate(sizes), reserves if self.rule.reserves else None)

    def _baselines(self, urls: UrlBaselines, crowded: CrowdedBuckets, pairs: int) -> Baselines:
        baselines = urls.baselines
        inside, ends = np.zeros(0, np.int64), np.zeros(len(baselines) + 1, np.int64)
        if len(crowded.keys) and len(baselines):
            words = self.rule.table_words(baselines.fingerprint, baselines.sketch)
            keys = self.state.design.keys(words)
            if self.rule.reserves:
                keys = np.column_stack([keys, keys_of_reserves(words)])
            inside, ends = crowded.of(keys, baselines.skipped, pairs)
        return Baselines(
            page=baselines.page,
            cluster=baselines.cluster,
            anchor=urls.alive,
            dies=urls.dies,
            buckets=inside,
            ends=ends,
        )

    @staticmethod
    def _stored_candidates(parts: list[_Part], dying: Nearest) -> StoredCandidates:
        pairs = [part.pairs for part in parts]
        number = np.concatenate([each.candidates.anchor for each in pairs])
        of_row = [np.diff(each.ends, prepend=0) for each in pairs]
        return StoredCandidates(
            ends=np.append(0, np.cumsum(np.concatenate(of_row))),
            page=np.concatenate([each.anchors.page[each.place] for each in pairs]),
            distance=np.concatenate([each.candidates.distance for each in pairs]),
            rank=np.concatenate([each.rank for each in pairs]),
            reserve=np.concatenate([each.candidates.reserve for each in pairs]),
            similarity=np.concatenate([each.similarity + UNLIKE * ~each.similar for each in pairs]),
            dies=dying.rows_of(number, ALIVE),
        )

    def _write_down(
        self,
        rows: int,
        course: Course,
        urls: UrlBaselines,
        parts: list[_Part],
        skipped: NDArray[np.uint64],
    ) -> None:
        """Complete the verdicts of the first `rows` rows: URLs, and what happens to anchors."""
        judged, batch, ready = self.judged, self.batch, self.ready[:rows]
        judged.other_url = self._other_urls(course.kind[:rows], course.which[:rows], urls, parts)
        judged.full[ready], judged.cut[ready] = course.full[:rows], course.cut[:rows]
        out = np.flatnonzero(skipped[:rows])
        judged.skipped.update(zip(ready[out].tolist(), skipped[out].tolist(), strict=True))
        numbers = own_numbers(judged.columns.stored_as[ready], self.state.next)
        superseded, first = course.superseded[:rows], urls.rows.baseline[0, :rows]
        names = iter(urls.baselines.urls(first[superseded == BASELINE]).texts())
        for row in np.flatnonzero(superseded).tolist():
            if superseded[row] == BASELINE:
                number = first[row]
                anchor, page = int(urls.alive[number]), int(urls.baselines.page[number])
                url = next(names) or ""
            else:
                before = int(course.before[row])
                anchor = int(numbers[before])
                page, url = int(batch.page[ready[before]]), self._url(before)
            judged.superseded.append(Supersession(int(ready[row]), anchor, page, url))
        self._write_numbers(ready, numbers, course, urls, parts)

    def _write_numbers(
        self,
        ready: NDArray[np.int64],
        own: NDArray[np.int64],
        course: Course,
        urls: UrlBaselines,
        parts: list[_Part],
    ) -> None:
        """Write the numbers of the pages that the rows `ready` name, and of the anchors of the clusters that
        are other pages. `own` are the numbers of the rows' own pages."""
        columns, rows = self.judged.columns, len(ready)
        kind, which, home = course.kind[:rows], course.which[:rows], course.home[:rows]
        stored, of_baseline, earlier = (np.flatnonzero(kind == each) for each in (STORED, BASELINE, EARLIER))
        number, anchor = np.full((2, rows), NO_NUMBER)
        near, here = (np.flatnonzero(home == each) for each in (STORED, EARLIER))
        if len(stored) or len(near):
            candidates = np.concatenate([part.pairs.candidates.anchor for part in parts])
            number[stored] = candidates[which[stored]]
            anchor[near] = candidates[course.anchor[near]]
        number[earlier] = own[which[earlier]]
        anchor[here] = own[course.anchor[here]]
        joining = earlier[home[earlier] == NOBODY]
        anchor[joining] = anchor[which[joining]]  # the pages that these name are stored
        if len(of_baseline):
            number[of_baseline] = urls.baselines.number[which[of_baseline]]
            joining = of_baseline[home[of_baseline] == NOBODY]
            anchor[joining] = urls.baselines.cluster_anchor[which[joining]]
        columns.number[ready] = number
        named = is_among(columns.verdict[ready], CLUSTERED)
        again = np.flatnonzero(named & (columns.cluster[ready] != columns.other[ready]))
        row, of_cluster = ready[again], anchor[again]
        gone = {each.anchor: each.row for each in self.judged.superseded}
        since = np.array([gone.get(each, len(self.batch)) for each in of_cluster.tolist()], np.int64)
        live = self.state.tables.is_alive(of_cluster) & (since > row)
        columns.anchor[row] = np.where(live, of_cluster, NO_LONGER_LIVE)

    def _other_bytes(
        self, rows: int, course: Course, urls: UrlBaselines, parts: list[_Part]
    ) -> NDArray[np.int64]:
        """Return the running total of bytes of other pages' URLs that the first `rows` rows name (rows,)."""
        kind, which, size = course.kind[:rows], course.which[:rows], np.zeros(rows, np.int64)
        stored = np.flatnonzero(kind == STORED)
        if len(stored):
            size[stored] = np.concatenate([part.pairs.url_bytes for part in parts])[which[stored]]
        of_batch = np.maximum(self.batch.url.sizes, 0)[self.ready]
        earlier = np.flatnonzero(kind == EARLIER)
        size[earlier] = of_batch[which[earlier]]
        superseding = np.flatnonzero(course.superseded[:rows] == EARLIER)
        size[superseding] += of_batch[course.before[superseding]]
        if len(urls.baselines):
            of_baseline = urls.baselines.url_bytes
            named = np.flatnonzero(kind == BASELINE)
            size[named] = of_baseline[which[named]]
            superseding = np.flatnonzero(course.superseded[:rows] == BASELINE)
            size[superseding] += of_baseline[urls.rows.baseline[0, superseding]]
        return np.cumsum(size)

    def _other_urls(
        self, kind: NDArray[np.uint8], which: NDArray[np.int64], urls: UrlBaselines, parts: list[_Part]
    ) -> StringColumn:
        """Return the URL of the page that each row of the batch is compared with, if there is one."""
        stored, of_baseline, earlier = (np.flatnonzero(kind == each) for each in (STORED, BASELINE, EARLIER))
        first, anchors = 0, [StringColumn.none(0)]
        for pairs in (part.pairs for part in parts):  # whose rows and pairs are in order
            some = which[stored[np.searchsorted(which[stored], first) :]] - first
            some = some[some < len(pairs.place)]
            if len(some):
                anchors.append(pairs.anchors.urls(pairs.place[some]))
            first += len(pairs.place)
        strings = StringColumn.joined(
            [
                self.batch.url._replace(sizes=np.maximum(self.batch.url.sizes, 0)),
                *anchors,
                urls.baselines.urls(which[of_baseline]),
                StringColumn.none(1),
            ]
        )
        # Which of these URLs each row gets.
        of = np.full(len(self.batch), len(strings.sizes) - 1)
        of[self.ready[earlier]] = self.ready[which[earlier]]
        of[self.ready[stored]] = len(self.batch) + np.arange(len(stored))
        of[self.ready[of_baseline]] = len(self.batch) + len(stored) + np.arange(len(of_baseline))
        return strings.take(of)

    def _url(self, row: int) -> str:
        return self.batch.url.text(int(self.ready[row]))

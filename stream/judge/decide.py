"""Decides the verdicts of a batch of pages, with the same result as deciding them one by one.

Candidates, distances and similarities are computed for the whole batch at once. The loop over rows only
handles what depends on order: baselines of URLs, superseded anchors, and anchors created within the batch.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.columns import among, as_column, distances, integers
from stream.fingerprint.row import FINGERPRINTED, Status
from stream.judge.batch import Batch
from stream.judge.batch_anchors import Neighbours, best_of
from stream.judge.candidates_compared import compare_in_parts
from stream.judge.ids import NO_PAGE
from stream.judge.nearest import nearest
from stream.judge.rule import NO_SIMILARITY, Rule
from stream.judge.state import Anchors, Baseline, State
from stream.messages.verdict import Change, Verdict
from stream.tables.probing import Probing

NO_DISTANCE = -1
THREADS = 2
"""Number of search threads. More would compete with workers and the broker on a small machine."""
FEW = 256
"""Number of rows up to which a single thread searches. Handing work to others takes up to a millisecond if
the GIL is contended."""
ROWS_AT_ONCE = 4096
"""Rows per search. With 1,024, a batch of 32,768 takes 40 ms more of CPU time, because two threads contend
for the GIL. With spam, a row has up to `bucket_cap` candidates in every probed bucket."""
MOST: Final = 1 << 24
"""Bound on the near candidates of a batch, counted separately for stored anchors and for those of the batch.
When it is exceeded, the remaining records are left to the next batch. It amounts to some seconds of one core;
ordinary batches stay far below."""
LOOKED_AT: Final = 8
"""Number of anchors compared by fingerprint only that count as one near candidate."""
TURN_ROWS: Final = 256
"""Rows between reports of progress."""
_Named = tuple[int, int, str, int, int]
"""Page, cluster, URL, distance and similarity of the page that a row matches."""


@dataclass(frozen=True, slots=True)
class Supersession:
    """A superseded anchor, and the row of the batch whose page replaced it."""

    row: int
    anchor: int
    page: int
    url: str


@dataclass(slots=True, eq=False)
class Judged:
    """Verdicts of a batch of n rows."""

    verdict: NDArray[np.uint8]
    change: NDArray[np.uint8]
    cluster: NDArray[np.int64]
    """Packed id of the cluster's anchor, NO_PAGE for none."""
    other: NDArray[np.int64]
    """Packed id of the page that `distance` and `similarity` compare with, NO_PAGE for none."""
    other_url: dict[int, str]
    """Row -> URL of `other`."""
    distance: NDArray[np.int16]
    similarity: NDArray[np.int32]
    """In ten-thousandths, NO_SIMILARITY for none."""
    superseded: list[Supersession] = field(default_factory=list)
    skipped: dict[int, int] = field(default_factory=dict)
    """Row -> bit mask of tables whose full bucket its anchor did not enter."""
    candidates: int = 0
    """Number of candidates found in the tables; for metrics."""
    verified: int = 0
    """Number of candidates that were similar enough."""

    def __len__(self) -> int:
        return len(self.verdict)

    @classmethod
    def blank(cls, n: int) -> Judged:
        """Return columns for n rows, without verdicts."""
        return cls(
            verdict=np.zeros(n, np.uint8),
            change=np.zeros(n, np.uint8),
            cluster=np.full(n, NO_PAGE, np.int64),
            other=np.full(n, NO_PAGE, np.int64),
            other_url={},
            distance=np.full(n, NO_DISTANCE, np.int16),
            similarity=np.full(n, NO_SIMILARITY, np.int32),
        )

    def up_to(self, end: int) -> Judged:
        """Return the verdicts of the rows before `end`."""
        return replace(
            self,
            verdict=self.verdict[:end],
            change=self.change[:end],
            cluster=self.cluster[:end],
            other=self.other[:end],
            other_url={row: url for row, url in self.other_url.items() if row < end},
            distance=self.distance[:end],
            similarity=self.similarity[:end],
            superseded=[each for each in self.superseded if each.row < end],
            skipped={row: mask for row, mask in self.skipped.items() if row < end},
        )


@dataclass(frozen=True, slots=True)
class Effort:
    """A bound on the work per batch, and a callback for progress."""

    most: int = sys.maxsize
    """Bound on near candidates, see `MOST`."""
    turned: Callable[[], None] = lambda: None
    """Called regularly, from any thread, to report progress."""


def decide(
    batch: Batch, state: State, rule: Rule, ends: NDArray[np.int64], effort: Effort | None = None
) -> Judged:
    """Decide the verdicts of `batch` against `state`, without changing either.

    `ends` are the ends of the journal records, as rows of the batch. The rows of the first record are always
    decided. Of the other records, as many are decided as the effort allows.
    """
    judged = Judged.blank(len(batch))
    judged.verdict[batch.status == Status.REJECTED] = Verdict.REJECTED
    judged.verdict[batch.status == Status.INSUFFICIENT] = Verdict.INSUFFICIENT
    ready = np.flatnonzero(among(batch.status, FINGERPRINTED))
    if not ready.size:
        return judged
    least = int(np.searchsorted(ready, ends[0])) if len(ends) else 0
    end = _Pass(batch, ready, state, rule, judged, effort or Effort(), least).run()
    if end == len(batch):
        return judged
    return judged.up_to(int(ends[np.searchsorted(ends, end, "right") - 1]))


class _Kept(NamedTuple):
    """Matching stored anchors of some rows on which verdicts may depend, in columns, best first in each
    row."""

    row: NDArray[np.int64]
    number: NDArray[np.int64]
    page: NDArray[np.int64]
    distance: NDArray[np.uint8]
    similarity: NDArray[np.int64]
    urls: list[str]


class _Near(NamedTuple):
    """Candidates of some rows that may be among the nearest, by age in each row, whether similar or not."""

    first: int
    """Rank of the first row, i.e. its index among the rows with a fingerprint."""
    ends: NDArray[np.int64]
    distance: NDArray[np.uint8]
    place: NDArray[np.int64]
    """Indexes into `anchors`."""
    anchors: Anchors

    def of(self, rank: int) -> slice:
        """Return the slice of `distance` and `place` for the row with this rank."""
        row = rank - self.first
        return slice(int(self.ends[row - 1]) if row else 0, int(self.ends[row]))


class _Searched(NamedTuple):
    """The result of searching stored anchors for some rows, in order. Only the first `rows` were searched."""

    rows: int
    kept: list[_Kept]
    near: list[_Near]
    probed: list[Probing]
    bucket_sizes: list[NDArray[np.uint32]]
    candidates: int
    verified: int


class _Stored:
    """Matching stored anchors of all rows, in columns, best first in each row."""

    def __init__(self, kept: list[_Kept]) -> None:
        row, self.number, self.page, self.distance, self.similarity = (
            np.concatenate(columns) for columns in list(zip(*kept, strict=True))[:-1]
        )
        self.urls = [url for each in kept for url in each.urls]
        starts = np.flatnonzero(np.diff(row, prepend=-1))
        self._ends = np.append(starts[1:], len(row))
        self.rows = row[starts]
        """The rows that have any, ascending."""
        self.best = starts
        """Index into the columns of the best anchor of each of these rows."""

    def columns_of(self, some: NDArray[np.bool_]) -> dict[int, range]:
        """Return row -> indexes of its anchors in the columns, for the rows in the mask `some`."""
        edges = zip(self.best[some].tolist(), self._ends[some].tolist(), strict=True)
        return dict(zip(self.rows[some].tolist(), (range(*each) for each in edges), strict=True))


class _Pass:
    """The decision of one batch.

    Rows are indexes into the batch. `ready` are the rows with a fingerprint, and ranks are indexes into
    `ready`.
    """

    def __init__(
        self,
        batch: Batch,
        ready: NDArray[np.int64],
        state: State,
        rule: Rule,
        judged: Judged,
        effort: Effort,
        least: int,
    ) -> None:
        """The first `least` ranks are decided whatever the effort."""
        self.batch, self.state, self.rule, self.judged, self.effort = batch, state, rule, judged, effort
        self.least, self.met = least, 0
        self.statuses: list[int] = batch.status.tolist()
        url_keys = [batch.url_key[row] or "" for row in ready.tolist()]
        starts = range(0, len(ready), ROWS_AT_ONCE)
        if len(ready) <= FEW:
            self.baselines = state.baselines(url_keys)
            self.mortal = self._mortal(self.baselines)
            searched = [self._search(ready, start, lambda: self.mortal) for start in starts]
        else:
            # Compiled loops and RocksDB release the GIL, so two threads are nearly twice as fast as one.
            with ThreadPoolExecutor(THREADS, "decide") as pool:
                baselines = pool.submit(state.baselines, url_keys)

                def search(start: int) -> _Searched:
                    return self._search(ready, start, lambda: self._mortal(baselines.result()))

                searched = list(pool.map(search, starts))
                self.baselines = baselines.result()
                self.mortal = self._mortal(self.baselines)
        short = next((i for i, each in enumerate(searched) if each.rows < ROWS_AT_ONCE), len(searched))
        searched = searched[: short + 1]
        self.ready = ready = ready[: sum(each.rows for each in searched)]
        self.rows: list[int] = ready.tolist()
        self.url_keys = url_keys[: len(ready)]
        self.stored = _Stored([kept for each in searched for kept in each.kept])
        self.near = [near for each in searched for near in each.near]
        self.near_from = [near.first for near in self.near]
        judged.candidates = sum(each.candidates for each in searched)
        judged.verified = sum(each.verified for each in searched)
        sizes = [some for each in searched for some in each.bucket_sizes]
        self.neighbours = Neighbours(
            [probing for each in searched for probing in each.probed],
            batch.fingerprint[ready],
            np.concatenate(sizes) if sizes else None,
            None if rule.options.strict else rule.options.bucket_cap,
        )
        self.fingerprints = integers(batch.fingerprint)
        self.least_similarity, self.compared = rule.least_similarity, rule.compared
        self.rank = {row: rank for rank, row in enumerate(self.rows)}
        self._compare_baselines()

        # Changed by the loop, as of the current row: baselines of URLs and dead anchors.
        self.latest: dict[str, int] = {}
        self.dead: dict[int, None] = {}
        self.gone: dict[int, tuple[NDArray[np.bool_], int]] = {}
        """id() of `Anchors` -> mask of those that are dead, and the length of `dead` at that time."""
        self.named: dict[int, _Named] = {}
        self.verdicts = np.full(len(ready), Verdict.UNIQUE, np.uint8)
        self.changes = np.full(len(ready), Change.NEW, np.uint8)
        self.superseded_rows: list[tuple[int, int]] = []
        self.stored_of: dict[int, range] = {}
        """Row -> its anchors in `stored`, for the rows for which order matters."""

    def run(self) -> int:
        """Decide the rows for which order matters one by one. Returns the row up to which all are decided.

        All other rows are pages of new URLs. They are duplicates of their best stored anchor if they have
        one, else unique.
        """
        baselines, latest = self.baselines, self.latest
        ordered = self._ordered()
        self._name_stored(ordered)
        self.met, end = 0, self._after(len(self.rows))
        for count, rank in enumerate(np.flatnonzero(ordered).tolist()):
            if not count % TURN_ROWS:
                self.effort.turned()
            if self.met > self.effort.most and rank >= self.least:
                end = self._after(rank)
                break
            row, url_key = self.rows[rank], self.url_keys[rank]
            if url_key in latest or url_key in baselines:
                change = self._against_baseline(row, url_key)
                self.changes[rank] = change
                if change == Change.UNCHANGED:
                    self.verdicts[rank] = Verdict.RECRAWL
                    continue
            if self._against_anchors(row):
                self.verdicts[rank] = Verdict.DUPLICATE
            elif skipped := self.neighbours.enter(rank):
                self.judged.skipped[row] = skipped
            latest[url_key] = row
        self._write_down()
        return end

    def _after(self, ranks: int) -> int:
        """Return the row of this rank, counted over all rows with a fingerprint, or the end of the batch."""
        every = np.flatnonzero(among(self.batch.status, FINGERPRINTED))
        return int(every[ranks]) if ranks < len(every) else len(self.batch)

    def _ordered(self) -> NDArray[np.bool_]:
        """Return the mask of ranks for which order matters.

        Their verdict may depend on another page of the batch or of the same URL, or affect that of such a
        page.
        """
        ordered = self.neighbours.concerned.copy()
        keys, baselines = self.url_keys, self.baselines
        if baselines:
            ordered[[rank for rank, key in enumerate(keys) if key in baselines]] = True
        if len(set(keys)) < len(keys):
            times = Counter(keys)
            ordered[[rank for rank, key in enumerate(keys) if times[key] > 1]] = True
        if len(self.mortal):
            best = np.isin(self.stored.number[self.stored.best], self.mortal)
            ordered[np.searchsorted(self.ready, self.stored.rows[best])] = True
            for near in self.near:  # rows with too many candidates were not compared yet
                crowded = np.diff(near.ends, prepend=0) > self.rule.compared
                ordered[near.first : near.first + len(crowded)] |= crowded
        return ordered

    def _name_stored(self, ordered: NDArray[np.bool_]) -> None:
        """Decide the rows that are not `ordered` and have stored anchors: they are duplicates of the best
        one."""
        judged, stored = self.judged, self.stored
        ranks = np.searchsorted(self.ready, stored.rows)
        plain = ~ordered[ranks]
        rows, best = stored.rows[plain], stored.best[plain]
        self.verdicts[ranks[plain]] = Verdict.DUPLICATE
        judged.other[rows] = judged.cluster[rows] = stored.page[best]
        judged.distance[rows] = stored.distance[best]
        judged.similarity[rows] = stored.similarity[best]
        judged.other_url.update(
            (row, stored.urls[at]) for row, at in zip(rows.tolist(), best.tolist(), strict=True)
        )
        self.stored_of = stored.columns_of(~plain)

    def _write_down(self) -> None:
        judged, batch, ready = self.judged, self.batch, self.ready
        judged.verdict[ready], judged.change[ready] = self.verdicts, self.changes
        unique = ready[self.verdicts == Verdict.UNIQUE]
        judged.cluster[unique] = batch.page[unique]
        if self.named:
            rows = np.fromiter(self.named, np.int64, len(self.named))
            page, cluster, urls, distance, similarity = zip(*self.named.values(), strict=True)
            judged.other[rows], judged.cluster[rows] = page, cluster
            judged.distance[rows], judged.similarity[rows] = distance, similarity
            judged.other_url.update(zip(rows.tolist(), urls, strict=True))
        for place, row in self.superseded_rows:
            number = self.state.tables.count + int(np.searchsorted(unique, row))
            judged.superseded[place] = replace(judged.superseded[place], anchor=number)

    def _against_baseline(self, row: int, url_key: str) -> Change:
        """Compare a row with its URL's baseline. Supersedes the URL's anchor if the page changed."""
        earlier = self.latest.get(url_key)
        if earlier is not None:
            if self._name_row(row, earlier):
                return Change.UNCHANGED
            rank = self.rank[earlier]
            if self.verdicts[rank] == Verdict.UNIQUE:
                self.neighbours.leave(rank)
                # Its anchor number is known only when all rows are decided.
                self.superseded_rows.append((len(self.judged.superseded), earlier))
                self._supersede(row, -1, int(self.batch.page[earlier]), self._url(earlier))
            return Change.CHANGED
        baseline = self.baselines[url_key]
        similar = self.baseline_similar.get(row)
        if similar is not None:
            self.named[row] = (baseline.page, baseline.cluster, baseline.url, *similar)
            return Change.UNCHANGED
        if baseline.anchor is not None and bool(self.state.tables.alive(np.array([baseline.anchor]))[0]):
            fingerprint = as_column([baseline.fingerprint], self.rule.scheme.width)
            words = self.state.table_words(fingerprint, baseline.sketch[None])
            keys = self.state.design.keys(words)[0]
            self.neighbours.stored_left(keys.tolist(), baseline.skipped)
            self._supersede(row, baseline.anchor, baseline.page, baseline.url)
        return Change.CHANGED

    def _against_anchors(self, row: int) -> bool:
        """Find the best matching anchor and name it. Returns False if there is none.

        Stored anchors come first because they are older.
        """
        best: _Named | None = None
        stored = self.stored
        for at in self.stored_of.get(row, ()):
            if int(stored.number[at]) not in self.dead:
                page = int(stored.page[at])
                best = (page, page, stored.urls[at], int(stored.distance[at]), int(stored.similarity[at]))
                break
        rank, within = self.rank[row], self.rule.largest_distance(self.statuses[row])
        ranks, distance, met = self.neighbours.near(rank, within, self.compared)
        self.met += len(ranks) + met // LOOKED_AT
        near = self.near[bisect_right(self.near_from, rank) - 1]
        of_row = near.of(rank)
        if of_row.stop - of_row.start + len(ranks) > self.compared:
            gone = self._gone(near.anchors)
            place, apart = near.place[of_row], near.distance[of_row]
            old, new = nearest(apart, gone[place], distance, ranks, within, self.compared)
            best = self._best_stored(row, near.anchors, place[old], apart[old])
            ranks, distance = ranks[new], distance[new]
        if len(ranks):
            rows = self.ready[ranks]
            sketches = self.batch.sketch
            similarity = self.rule.similarities_at(sketches, np.full(len(rows), row), sketches, rows)
            first = best_of(similarity, distance, ranks)
            alike = int(distance[first]), int(similarity[first])
            if alike[1] >= self.least_similarity and (
                best is None or (-alike[1], alike[0]) < (-best[4], best[3])
            ):
                earlier = int(rows[first])
                page = int(self.batch.page[earlier])
                best = (page, page, self._url(earlier), *alike)
        if best is None:
            return False
        self.named[row] = best
        return True

    def _best_stored(
        self, row: int, anchors: Anchors, place: NDArray[np.int64], apart: NDArray[np.uint8]
    ) -> _Named | None:
        """Return the best matching one of some stored anchors, given by age with their distances, or None."""
        if not len(place):
            return None
        rows = np.full(len(place), row)
        similarity = self.rule.similarities_at(self.batch.sketch, rows, anchors.sketch, place)
        at = best_of(similarity, apart.astype(np.int64), place)
        if similarity[at] < self.least_similarity:
            return None
        page = int(anchors.page[place[at]])
        return page, page, anchors.url(int(place[at])), int(apart[at]), int(similarity[at])

    def _gone(self, anchors: Anchors) -> NDArray[np.bool_]:
        """Return the mask of these anchors that are dead as of the current row."""
        gone, told = self.gone.get(id(anchors)) or (np.zeros(len(anchors.number), np.bool_), 0)
        if told < len(self.dead) and len(gone):
            died = np.fromiter(islice(self.dead, told, None), np.int64)
            place = np.searchsorted(anchors.number, died)
            gone[place[anchors.number.take(place, mode="clip") == died]] = True
        self.gone[id(anchors)] = gone, len(self.dead)
        return gone

    def _supersede(self, row: int, anchor: int, page: int, url: str) -> None:
        if anchor >= 0:
            self.dead[anchor] = None
        self.judged.superseded.append(Supersession(row, anchor, page, url))

    def _name_row(self, row: int, earlier: int) -> bool:
        """Return whether the row matches `earlier`, its URL's baseline in this batch; if so, name it."""
        alike = self._compare(row, earlier)
        if alike is None:
            return False
        page = int(self.batch.page[earlier])
        cluster = self.named[earlier][1] if earlier in self.named else page
        self.named[row] = (page, cluster, self._url(earlier), *alike)
        return True

    def _compare(self, row: int, earlier: int) -> tuple[int, int] | None:
        """Return distance and similarity of two rows of the batch, or None if they do not match."""
        distance = (self.fingerprints[row] ^ self.fingerprints[earlier]).bit_count()
        if distance > self.rule.largest_distance(self.statuses[row]):
            return None
        sketches = self.batch.sketch
        similarity = int(
            self.rule.similarities_at(sketches, np.array([row]), sketches, np.array([earlier]))[0]
        )
        return (distance, similarity) if similarity >= self.least_similarity else None

    def _url(self, row: int) -> str:
        return self.batch.url[row] or ""

    @staticmethod
    def _mortal(baselines: dict[str, Baseline]) -> NDArray[np.int64]:
        """Return the sorted anchors that a page of this batch may supersede."""
        anchors = [each.anchor for each in baselines.values() if each.anchor is not None]
        return np.sort(np.array(anchors, np.int64))

    def _search(
        self, ready: NDArray[np.int64], start: int, mortal: Callable[[], NDArray[np.int64]]
    ) -> _Searched:
        """Search the stored anchors for ROWS_AT_ONCE rows of `ready`, from rank `start` on.

        `mortal` returns the anchors that this batch may supersede, and may block until they are known.
        """
        batch, rows = self.batch, ready[start : start + ROWS_AT_ONCE]
        searched = _Searched(len(rows), [], [], [], [], 0, 0)
        # The first part is always searched, whichever thread runs first.
        if start and self.met > self.effort.most and start >= self.least:
            return searched._replace(rows=0)
        candidates = verified = 0
        for first, pairs in compare_in_parts(
            self.state,
            self.rule,
            batch.fingerprint[rows],
            batch.uncertain[rows],
            batch.sketch[rows],
            batch.status[rows],
            mortal,
        ):
            found, kept = pairs.found, pairs.decisive(mortal())
            place = pairs.place[kept]
            searched.kept.append(
                _Kept(
                    rows[first + found.row[kept]],
                    found.anchor[kept],
                    pairs.anchors.page[place],
                    found.distance[kept],
                    pairs.similarity[kept],
                    list(map(pairs.anchors.url, place.tolist())),
                )
            )
            searched.near.append(_Near(start + first, pairs.ends, found.distance, pairs.place, pairs.anchors))
            searched.probed.extend(found.probed)
            met = pairs.met
            if found.bucket_sizes is not None:
                searched.bucket_sizes.append(found.bucket_sizes)
                met = max(met, int(found.bucket_sizes.sum()) // LOOKED_AT)
            candidates += pairs.met
            verified += int(np.count_nonzero(pairs.similar))
            self.met += met  # a race between threads may lose counts, which is harmless
            self.effort.turned()
            searched_rows = first + len(found.probed[0].keys)
            if self.met > self.effort.most and start + searched_rows >= self.least:
                searched = searched._replace(rows=searched_rows)
                break
        return searched._replace(candidates=candidates, verified=verified)

    def _compare_baselines(self) -> None:
        """Compute distance and similarity for all rows that match the stored baseline of their URL."""
        self.baseline_similar: dict[int, tuple[int, int]] = {}
        pairs: list[tuple[int, Baseline]] = []
        if self.baselines:
            for row, url_key in zip(self.rows, self.url_keys, strict=True):
                if (baseline := self.baselines.get(url_key)) is not None:
                    pairs.append((row, baseline))
        if not pairs:
            return
        rows = np.array([row for row, _ in pairs], np.int64)
        theirs = as_column([baseline.fingerprint for _, baseline in pairs], self.rule.scheme.width)
        sketches = np.stack([baseline.sketch for _, baseline in pairs])
        distance = distances(self.batch.fingerprint[rows], theirs)
        similarity = self.rule.similarities(self.batch.sketch[rows], sketches)
        near = self.rule.near(distance, self.batch.status[rows])
        similar = near & (similarity >= self.rule.least_similarity)
        for i in np.flatnonzero(similar).tolist():
            self.baseline_similar[pairs[i][0]] = (int(distance[i]), int(similarity[i]))

"""The decision: a batch of pages against the anchors, exactly as if the pages came one by one.

Candidates, distances and similarities are found for the whole batch at once; the loop over rows then only
settles what depends on order: a URL's baseline, superseded anchors, and anchors of this very batch.
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
from stream.judge.compared import compare_in_parts
from stream.judge.ids import NO_PAGE
from stream.judge.nearest import nearest
from stream.judge.neighbours import Neighbours, best_of
from stream.judge.rule import NO_SIMILARITY, Rule
from stream.judge.state import Anchors, Baseline, State
from stream.messages.verdict import Change, Verdict
from stream.tables.probing import Probing

NO_DISTANCE = -1
THREADS = 2
"""That search at once. More would take the processor from workers and broker of a small machine."""
FEW = 256
"""Rows that one thread searches alone: others take longer to begin, a millisecond where the GIL is wanted."""
ROWS_AT_ONCE = 4096
"""Rows whose candidates are looked for at once. With 1,024, a batch of 32,768 takes 40 ms of processor more,
in which two threads hand each other the GIL. Spam gives a row up to `bucket_cap` in every probed bucket."""
MOST: Final = 1 << 24
"""Near candidates that a batch's rows may have, once in the tables and once among each other, before the
records that are left go to the next one. Ordinary batches stay far below. It takes a core some seconds."""
LOOKED_AT: Final = 8
"""Anchors of which the fingerprint alone is looked at count for one."""
TURN_ROWS: Final = 256
"""Rows after which whoever waits is told that the judge is at work."""
_Named = tuple[int, int, str, int, int]
"""Page, cluster, URL, distance and similarity of the page that a row's page is like."""


@dataclass(frozen=True, slots=True)
class Supersession:
    """An anchor that stops similarity, and the row of the batch whose page changed it."""

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
    """Row -> bit mask of the full buckets that its anchor did not enter."""
    candidates: int = 0
    """Anchors that the tables gave for all rows together; for metrics."""
    verified: int = 0
    """Of these, similar ones."""

    def __len__(self) -> int:
        return len(self.verdict)

    @classmethod
    def blank(cls, n: int) -> Judged:
        """Nothing judged yet."""
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
        """Those of the first rows."""
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
    """What deciding may cost, and who hears that it goes on."""

    most: int = sys.maxsize
    """As `MOST`."""
    turned: Callable[[], None] = lambda: None
    """Called now and then, from any thread."""


def decide(
    batch: Batch, state: State, rule: Rule, ends: NDArray[np.int64], effort: Effort | None = None
) -> Judged:
    """Verdicts of `batch`, given everything applied to `state`; changes neither.

    Records end before the rows `ends`. Those of the first record are always judged; of the others as many as
    the effort allows, up to one of the ends.
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
    """Of some rows, in columns, the stored anchors that verdicts may depend on, best first in each row."""

    row: NDArray[np.int64]
    number: NDArray[np.int64]
    page: NDArray[np.int64]
    distance: NDArray[np.uint8]
    similarity: NDArray[np.int64]
    urls: list[str]


class _Near(NamedTuple):
    """Of some rows the stored anchors that may be among the nearest, by age in each row, similar or not."""

    first: int
    """The first row's place among all with a fingerprint."""
    ends: NDArray[np.int64]
    distance: NDArray[np.uint8]
    place: NDArray[np.int64]
    """Where in `anchors` they stand."""
    anchors: Anchors

    def of(self, rank: int) -> slice:
        """Where those of a row, by its place among all, stand in `distance` and `place`."""
        row = rank - self.first
        return slice(int(self.ends[row - 1]) if row else 0, int(self.ends[row]))


class _Searched(NamedTuple):
    """What the stored anchors say of some rows, in order, the first `rows` of those that were asked for."""

    rows: int
    kept: list[_Kept]
    near: list[_Near]
    probed: list[Probing]
    bucket_sizes: list[NDArray[np.uint32]]
    candidates: int
    verified: int


class _Stored:
    """Similar stored anchors of the rows, the best of each row first, in columns."""

    def __init__(self, kept: list[_Kept]) -> None:
        row, self.number, self.page, self.distance, self.similarity = (
            np.concatenate(columns) for columns in list(zip(*kept, strict=True))[:-1]
        )
        self.urls = [url for each in kept for url in each.urls]
        starts = np.flatnonzero(np.diff(row, prepend=-1))
        self._ends = np.append(starts[1:], len(row))
        self.rows = row[starts]
        """Those that have any, ascending."""
        self.best = starts
        """Where in the columns the best anchor of each of them stands."""

    def columns_of(self, some: NDArray[np.bool_]) -> dict[int, range]:
        """Row -> indexes of its anchors in the columns, for `some` of `rows`."""
        edges = zip(self.best[some].tolist(), self._ends[some].tolist(), strict=True)
        return dict(zip(self.rows[some].tolist(), (range(*each) for each in edges), strict=True))


class _Pass:
    """One batch's loop. Rows below are indexes into the batch; `ready` are those with a fingerprint."""

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
        """The first `least` of the rows are judged whatever it takes."""
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
            # Compiled loops and RocksDB let go of the GIL: two threads are nearly twice as fast as one.
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

        # What the loop changes: a URL's baseline and dead anchors, as of the row at hand.
        self.latest: dict[str, int] = {}
        self.dead: dict[int, None] = {}
        self.gone: dict[int, tuple[NDArray[np.bool_], int]] = {}
        """By id of `Anchors`: which of them are dead, as of so many in `dead`."""
        self.named: dict[int, _Named] = {}
        self.verdicts = np.full(len(ready), Verdict.UNIQUE, np.uint8)
        self.changes = np.full(len(ready), Change.NEW, np.uint8)
        self.superseded_rows: list[tuple[int, int]] = []
        self.stored_of: dict[int, range] = {}
        """Row -> its anchors in `stored`; of rows for which order matters."""

    def run(self) -> int:
        """Judge row by row those for which order matters; all others are pages of new URLs, and duplicates
        of their best stored anchor where they have one. Rows before the one it gives are judged."""
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
        """The row after those that come before that rank, and those without a fingerprint which follow."""
        every = np.flatnonzero(among(self.batch.status, FINGERPRINTED))
        return int(every[ranks]) if ranks < len(every) else len(self.batch)

    def _ordered(self) -> NDArray[np.bool_]:
        """Which ranks' verdict may depend on another page of the batch or of their URL, or such a page's on
        theirs."""
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
            for near in self.near:  # of which nothing is compared yet
                crowded = np.diff(near.ends, prepend=0) > self.rule.compared
                ordered[near.first : near.first + len(crowded)] |= crowded
        return ordered

    def _name_stored(self, ordered: NDArray[np.bool_]) -> None:
        """The rows that are not `ordered` and have stored anchors are duplicates of the best one."""
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
        """What happened to the row's known URL; supersedes the URL's anchor when its page changed."""
        earlier = self.latest.get(url_key)
        if earlier is not None:
            if self._name_row(row, earlier):
                return Change.UNCHANGED
            rank = self.rank[earlier]
            if self.verdicts[rank] == Verdict.UNIQUE:
                self.neighbours.leave(rank)
                # Its number is known when all rows are judged.
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
        """Name the best similar anchor, if there is one: stored ones first, for they are older."""
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
        """The best similar one of these stored anchors, by age, at those distances."""
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
        """Which of these, by their places, are dead by now."""
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
        """Whether `earlier`, the URL's baseline in this batch, is similar; if so, it is named."""
        alike = self._compare(row, earlier)
        if alike is None:
            return False
        page = int(self.batch.page[earlier])
        cluster = self.named[earlier][1] if earlier in self.named else page
        self.named[row] = (page, cluster, self._url(earlier), *alike)
        return True

    def _compare(self, row: int, earlier: int) -> tuple[int, int] | None:
        """Distance and similarity of two rows of the batch; None where they are not similar."""
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
        """Anchors that a page of this batch may supersede, ascending."""
        anchors = [each.anchor for each in baselines.values() if each.anchor is not None]
        return np.sort(np.array(anchors, np.int64))

    def _search(
        self, ready: NDArray[np.int64], start: int, mortal: Callable[[], NDArray[np.int64]]
    ) -> _Searched:
        """Find similar stored anchors of the rows that come in `ready` from `start` on; `mortal` may wait for
        those."""
        batch, rows = self.batch, ready[start : start + ROWS_AT_ONCE]
        searched = _Searched(len(rows), [], [], [], [], 0, 0)
        # The first part is searched whichever thread comes first.
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
            self.met += met  # two threads may lose some, which does no harm
            self.effort.turned()
            searched_rows = first + len(found.probed[0].keys)
            if self.met > self.effort.most and start + searched_rows >= self.least:
                searched = searched._replace(rows=searched_rows)
                break
        return searched._replace(candidates=candidates, verified=verified)

    def _compare_baselines(self) -> None:
        """Distance and similarity of every row whose URL has a similar stored baseline."""
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

"""The decision: a batch of pages against the anchors, exactly as if the pages came one by one.

Candidates, distances and similarities are found for the whole batch at once; the loop over rows then only
settles what depends on order: a URL's baseline, superseded anchors, and anchors of this very batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.columns import among, as_column, distances, integers
from stream.fingerprint.row import FINGERPRINTED, Status
from stream.judge.batch import Batch
from stream.judge.compared import Compared, compare
from stream.judge.ids import NO_PAGE
from stream.judge.neighbours import Neighbours
from stream.judge.rule import NO_SIMILARITY, Rule
from stream.judge.state import Baseline, State
from stream.messages.verdict import Change, Verdict

NO_DISTANCE = -1
THREADS = 2
"""That search at once. More would take the processor from workers and broker of a small machine."""
FEW = 256
"""Rows that one thread searches alone: others take longer to begin, a millisecond where the GIL is wanted."""
ROWS_AT_ONCE = 4096
"""Rows whose candidates are looked for at once. With 1,024, a batch of 32,768 takes 40 ms of processor more,
in which two threads hand each other the GIL. Spam gives a row up to `bucket_cap` in every probed bucket."""
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


def decide(batch: Batch, state: State, rule: Rule) -> Judged:
    """Verdicts of `batch`, given everything applied to `state`; changes neither."""
    judged = Judged.blank(len(batch))
    judged.verdict[batch.status == Status.REJECTED] = Verdict.REJECTED
    judged.verdict[batch.status == Status.INSUFFICIENT] = Verdict.INSUFFICIENT
    ready = np.flatnonzero(among(batch.status, FINGERPRINTED))
    if ready.size:
        _Pass(batch, ready, state, rule, judged).run()
    return judged


class _Stored:
    """Similar stored anchors of the rows, the best of each row first, in columns; `parts` of the rows were
    `compared`."""

    def __init__(self, parts: list[NDArray[np.int64]], compared: list[Compared]) -> None:
        columns = []
        for which, (part, pairs) in enumerate(zip(parts, compared, strict=True)):
            order = pairs.best_first(np.flatnonzero(pairs.similar))
            found, place = pairs.found, pairs.place[order]
            columns.append(
                (
                    part[found.row[order]],
                    found.anchor[order],
                    pairs.anchors.page[place],
                    found.distance[order],
                    pairs.similarity[order],
                    place,
                    np.full(len(order), which),
                )
            )
        row, self.number, self.page, self.distance, self.similarity, self._place, self._part = map(
            np.concatenate, zip(*columns, strict=True)
        )
        self._anchors = [pairs.anchors for pairs in compared]
        starts = np.flatnonzero(np.diff(row, prepend=-1))
        self._ends = np.append(starts[1:], len(row))
        self.rows = row[starts]
        """Those that have any, ascending."""
        self.best = starts
        """Where in the columns the best anchor of each of them stands."""

    def urls(self, at: NDArray[np.int64]) -> Iterator[str]:
        """URLs of the anchors at these indexes of the columns."""
        for part, place in zip(self._part[at].tolist(), self._place[at].tolist(), strict=True):
            yield self._anchors[part].url(place)

    def columns_of(self, some: NDArray[np.bool_]) -> dict[int, range]:
        """Row -> indexes of its anchors in the columns, for `some` of `rows`."""
        edges = zip(self.best[some].tolist(), self._ends[some].tolist(), strict=True)
        return dict(zip(self.rows[some].tolist(), (range(*each) for each in edges), strict=True))


class _Pass:
    """One batch's loop. Rows below are indexes into the batch; `ready` are those with a fingerprint."""

    def __init__(
        self, batch: Batch, ready: NDArray[np.int64], state: State, rule: Rule, judged: Judged
    ) -> None:
        self.batch, self.state, self.rule, self.judged = batch, state, rule, judged
        self.rows: list[int] = ready.tolist()
        self.url_keys = [batch.url_key[row] or "" for row in self.rows]
        parts = [ready[first : first + ROWS_AT_ONCE] for first in range(0, len(ready), ROWS_AT_ONCE)]
        if len(ready) <= FEW:
            self.baselines = state.baselines(self.url_keys)
            compared = [self._compare_stored(part) for part in parts]
        else:
            # Compiled loops and RocksDB let go of the GIL: two threads are nearly twice as fast as one.
            with ThreadPoolExecutor(THREADS, "decide") as pool:
                baselines = pool.submit(state.baselines, self.url_keys)
                compared = list(pool.map(self._compare_stored, parts))
                self.baselines = baselines.result()
        found = [each.found for each in compared]
        self.stored = _Stored(parts, compared)
        judged.candidates = sum(len(each.similar) for each in compared)
        judged.verified = len(self.stored.number)
        sizes = [each.bucket_sizes for each in found if each.bucket_sizes is not None]
        self.neighbours = Neighbours(
            [probing for each in found for probing in each.probed],
            np.concatenate(sizes) if sizes else None,
            None if rule.options.strict else rule.options.bucket_cap,
        )
        self.ready = ready
        self.fingerprints = integers(batch.fingerprint)
        self.statuses: list[int] = batch.status.tolist()
        self.least_similarity = rule.least_similarity
        self.rank = {row: rank for rank, row in enumerate(self.rows)}
        self._compare_baselines()

        # What the loop changes: a URL's baseline and dead anchors, as of the row at hand.
        self.latest: dict[str, int] = {}
        self.dead: set[int] = set()
        self.named: dict[int, _Named] = {}
        self.verdicts = np.full(len(ready), Verdict.UNIQUE, np.uint8)
        self.changes = np.full(len(ready), Change.NEW, np.uint8)
        self.superseded_rows: list[tuple[int, int]] = []
        self.stored_of: dict[int, range] = {}
        """Row -> its anchors in `stored`; of rows for which order matters."""

    def run(self) -> None:
        """Judge row by row those for which order matters; all others are pages of new URLs, and duplicates
        of their best stored anchor where they have one."""
        baselines, latest = self.baselines, self.latest
        ordered = self._ordered()
        self._name_stored(ordered)
        for rank in np.flatnonzero(ordered).tolist():
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
        # An anchor that a page of this batch may supersede.
        mortal = [each.anchor for each in baselines.values() if each.anchor is not None]
        if mortal:
            best = np.isin(self.stored.number[self.stored.best], mortal)
            ordered[np.searchsorted(self.ready, self.stored.rows[best])] = True
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
        judged.other_url.update(zip(rows.tolist(), stored.urls(best), strict=True))
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
                page, (url,) = int(stored.page[at]), stored.urls(np.array([at]))
                best = (page, page, url, int(stored.distance[at]), int(stored.similarity[at]))
                break
        for rank in sorted(self.neighbours.anchors_probed_by(self.rank[row])):
            earlier = self.rows[rank]
            alike = self._compare(row, earlier)
            if alike is not None and (best is None or (-alike[1], alike[0]) < (-best[4], best[3])):
                page = int(self.batch.page[earlier])
                best = (page, page, self._url(earlier), *alike)
        if best is None:
            return False
        self.named[row] = best
        return True

    def _supersede(self, row: int, anchor: int, page: int, url: str) -> None:
        self.dead.add(anchor)
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

    def _compare_stored(self, ready: NDArray[np.int64]) -> Compared:
        """Find stored candidates of some rows."""
        batch = self.batch
        return compare(
            self.state,
            self.rule,
            batch.fingerprint[ready],
            batch.uncertain[ready],
            batch.sketch[ready],
            batch.status[ready],
        )

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

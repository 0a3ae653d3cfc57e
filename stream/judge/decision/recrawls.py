"""Recrawls: which pages of a batch are like one of the last stored pages of their URL (rule 20), and which of
these have no live anchor (rule 22).

Pages of the batch itself become baselines, too: `stream.judge.decision.decide_rows_compiled` compares with
those, row by row, and names the recrawls.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.lanes import distances
from stream.fingerprint.row import NO_DIGEST
from stream.fingerprint.sketch import SketchPairs
from stream.judge.batch import Batch
from stream.judge.decision.decide_rows_compiled import ALIVE, FingerprintedRows
from stream.judge.decision.nearest import Nearest
from stream.judge.rule import Rule
from stream.judge.state.baselines import BaselinePages
from stream.judge.state.state import State
from stream.tables.arrays import distinct


class UrlBaselines(NamedTuple):
    """The URLs of n rows with a fingerprint, and their stored baselines."""

    rows: FingerprintedRows
    baselines: BaselinePages
    alive: NDArray[np.int64]
    """Each baseline's anchor, -1 where it is none, or dead."""
    dies: NDArray[np.int64]
    """The row from which on the cluster of each URL's newest baseline has no live anchor; -1 if it had none
    before the batch, ALIVE if it has one to the end."""
    dying: Nearest
    """The anchors that are superseded."""


def compare_baselines(batch: Batch, ready: NDArray[np.int64], state: State, rule: Rule) -> UrlBaselines:
    """Compare the rows of a batch that have a fingerprint, `ready` (n,), with the baselines of their URLs.

    The first page that is like none of its URL's baselines supersedes the newest one. Older baselines are
    read only for pages that are not like newer ones.
    """
    rows, keys = len(ready), batch.url_digests(ready)
    numbers = dict(zip(keys, range(rows), strict=True))  # of a URL: its last row
    url = np.fromiter(map(numbers.__getitem__, keys), np.int64, rows)
    if (none := numbers.pop(NO_DIGEST, None)) is not None:
        # Two pages without a URL key never share a baseline: each counts as a URL of its own.
        without = np.flatnonzero(url == none)
        url[without] = without
    references = {numbers[key]: each for key, each in state.references(list(numbers)).items()}
    compared = _Comparisons(batch, ready, state, rule, url, references)
    every = np.ones(rows, np.bool_)
    for age in range(rule.options.baselines):
        if not compared.add(age, 0, every):
            break
    of, similar = compared.of[0], compared.similar[0]
    baselines = compared.baselines()
    anchors = baselines.cluster_anchor
    lives = state.tables.is_alive(anchors)
    alive = np.where(lives & (baselines.page == baselines.cluster), anchors, -1)
    changed = np.flatnonzero((of >= 0) & ~similar)
    which, first = np.unique(of[changed], return_index=True)
    order = np.argsort(alive[which])[np.count_nonzero(alive[which] < 0) :]
    within = rule.within(batch.status[ready])
    dying = Nearest(rule.selected, within, alive[which][order], changed[first][order])
    dies = np.where(lives, dying.rows_of(anchors, ALIVE), -1)
    compared.add_without_newest(dies)
    baselines = compared.baselines()
    more = len(baselines) - len(dies)  # older ones, whose anchors are superseded
    of_rows = FingerprintedRows(
        place=ready,
        page=batch.page,
        sketch=batch.sketch,
        within=within,
        url=url,
        baseline=compared.of,
        newer=compared.newer,
        similar=compared.similar,
        distance=compared.distance,
        similarity=compared.similarity,
    )
    alive, dies = np.append(alive, np.full(more, -1)), np.append(dies, np.full(more, ALIVE))
    return UrlBaselines(of_rows, baselines, alive, dies, dying)


class _Comparisons:
    """How n rows compare with the stored baselines of their URLs, as in `FingerprintedRows`."""

    def __init__(
        self,
        batch: Batch,
        ready: NDArray[np.int64],
        state: State,
        rule: Rule,
        url: NDArray[np.int64],
        references: dict[int, list[bytes]],
    ) -> None:
        """`url` (n,) says which rows have the same URL, by numbers below n; `references` are those of a
        number."""
        self._batch, self._ready, self._state, self._rule = batch, ready, state, rule
        self._url, self._references = url, references
        self._parts: list[BaselinePages] = []
        shape = 2, len(ready)
        self.of, self.newer = np.full(shape, -1), np.zeros(shape, np.int64)
        self.similar = np.zeros(shape, np.bool_)
        self.distance, self.similarity = np.zeros((2, *shape), np.int64)

    def baselines(self) -> BaselinePages:
        """Those that were compared so far."""
        self._parts = [BaselinePages.joined(self._parts or [self._state.resolved([])])]
        return self._parts[0]

    def add(self, age: int, line: int, some: NDArray[np.bool_]) -> bool:
        """Compare some rows, of a mask (n,), with the baselines of their URLs that have so many newer ones,
        unless they are like one of those; in the first or second line of the columns. Returns whether there
        were any."""
        batch, rule, references = self._batch, self._rule, self._references
        having = [number for number, each in references.items() if len(each) > age]
        of_url = np.full(len(self._url), -1)
        of_url[having] = np.arange(len(having))
        rows = np.flatnonzero((of_url[self._url] >= 0) & ~self.similar[line] & some)
        wanted = distinct(of_url[self._url[rows]])
        if not len(wanted):
            return False
        resolved = self._state.resolved([references[having[each]][age] for each in wanted.tolist()])
        place, at = np.searchsorted(wanted, of_url[self._url[rows]]), self._ready[rows]
        bits = distances(batch.fingerprint[at], resolved.fingerprint[place])
        pairs = SketchPairs(batch.sketch, at, resolved.sketch, place)
        alike = rule.similarities(pairs)
        like = rule.near(bits, batch.status[at]) & (alike >= rule.least(pairs))
        named = like | (age == 0)
        at = rows[named]
        before = sum(map(len, self._parts))
        self.of[line, at], self.newer[line, at] = before + place[named], age - line
        self.similar[line, at] = like[named]
        self.distance[line, at], self.similarity[line, at] = bits[named], alike[named]
        self._parts.append(resolved)
        return True

    def add_without_newest(self, dies: NDArray[np.int64]) -> None:
        """Fill the second line, for the rows that follow one of their URL which may take the place of its
        newest baseline. `dies` is that of `UrlBaselines`, of the baselines of the first line."""
        row = np.arange(len(self._ready))
        newest = self.similar[0] & (self.newer[0] == 0)
        orphans = newest & (dies[self.of[0]] <= row) if len(dies) else newest
        if not orphans.any():
            return
        first = np.full(len(row), len(row))
        np.minimum.at(first, self._url[orphans], row[orphans])
        later = row > first[self._url]
        for column in (self.of, self.newer, self.similar, self.distance, self.similarity):
            column[1] = column[0]
        self.newer[1] -= 1
        self.similar[1] &= ~newest
        for age in range(1, self._rule.options.baselines):
            if not self.add(age, 1, later & newest):
                break

"""Recrawls: which pages of a batch are like one of the last stored pages of their URL (rule 20).

Pages of the batch itself become baselines, too: `stream.judge.decide_rows_compiled` compares with those, row
by row, and names the recrawls.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.lanes import distances, from_integers
from stream.fingerprint.row import NO_DIGEST
from stream.fingerprint.sketch import SketchPairs
from stream.judge.batch import Batch
from stream.judge.decide_rows_compiled import FingerprintedRows
from stream.judge.rule import Rule
from stream.judge.state import Baseline, State
from stream.tables.arrays import distinct
from stream.tables.search.probing import Nearest


class UrlBaselines(NamedTuple):
    """The URLs of n rows with a fingerprint, and their stored baselines."""

    rows: FingerprintedRows
    distinct: int
    """Number of different URLs."""
    baselines: list[Baseline]
    alive: NDArray[np.int64]
    """Each baseline's anchor, -1 where it is none, or dead."""
    dying: Nearest
    """The anchors that are superseded."""


def compare_baselines(batch: Batch, ready: NDArray[np.int64], state: State, rule: Rule) -> UrlBaselines:
    """Compare the rows of a batch that have a fingerprint, `ready` (n,), with the baselines of their URLs.

    The first page that is like none of its URL's baselines supersedes the newest one. Older baselines are
    read only for pages that are not like newer ones.
    """
    rows = len(ready)
    numbers: dict[bytes, int] = {}
    url = np.array([numbers.setdefault(each, len(numbers)) for each in batch.url_digests(ready)], np.int64)
    urls = len(numbers)
    if (none := numbers.pop(NO_DIGEST, None)) is not None:
        # Two pages without a URL key never share a baseline: each counts as a URL of its own.
        without = np.flatnonzero(url == none)
        url[without] = urls + np.arange(len(without))
        urls += len(without)
    references = {numbers[key]: each for key, each in state.references(numbers).items()}
    baselines: list[Baseline] = []
    of, newer = np.full(rows, -1), np.zeros(rows, np.int64)
    similar, distance, similarity = np.zeros(rows, np.bool_), *np.zeros((2, rows), np.int64)
    for age in range(rule.options.baselines):
        having = [number for number, each in references.items() if len(each) > age]
        of_url = np.full(urls, -1)
        of_url[having] = np.arange(len(having))
        some = np.flatnonzero((of_url[url] >= 0) & ~similar)
        wanted = distinct(of_url[url[some]])
        if not len(wanted):
            break
        resolved = state.resolved([references[having[each]][age] for each in wanted.tolist()])
        place, at = np.searchsorted(wanted, of_url[url[some]]), ready[some]
        prints = from_integers([each.fingerprint for each in resolved], rule.scheme.width)
        bits = distances(batch.fingerprint[at], prints[place])
        sketches = np.stack([each.sketch for each in resolved])
        pairs = SketchPairs(batch.sketch, at, sketches, place)
        alike = rule.similarities(pairs)
        like = rule.near(bits, batch.status[at]) & (alike >= rule.least(pairs))
        named = like | (age == 0)
        at = some[named]
        of[at], newer[at], similar[at] = len(baselines) + place[named], age, like[named]
        distance[at], similarity[at] = bits[named], alike[named]
        baselines += resolved
    alive = np.array([-1 if each.anchor is None else each.anchor for each in baselines], np.int64)
    alive[alive >= 0] = np.where(state.tables.is_alive(alive[alive >= 0]), alive[alive >= 0], -1)
    changed = np.flatnonzero((of >= 0) & ~similar)
    which, first = np.unique(of[changed], return_index=True)
    order = np.argsort(alive[which])[np.count_nonzero(alive[which] < 0) :]
    within = rule.within(batch.status[ready])
    dying = Nearest(rule.selected, within, alive[which][order], changed[first][order])
    of_rows = FingerprintedRows(
        place=ready,
        page=batch.page,
        sketch=batch.sketch,
        within=within,
        url=url,
        baseline=of,
        newer=newer,
        similar=similar,
        distance=distance,
        similarity=similarity,
    )
    return UrlBaselines(of_rows, urls, baselines, alive, dying)

"""Answers about journal records from the tables of a segment."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.judge.decision.candidates_compared import (
    AnchorReader,
    Compared,
    FingerprintedPages,
    TablesSearch,
)
from stream.judge.decision.nearest import nearest_alive
from stream.judge.rule import Rule
from stream.judge.segments.answer import Answer, BucketCounts, ListedPairs, Run, Segment
from stream.tables.search.nearest import ALL
from stream.tables.search.queries import TableKeys
from stream.tables.tables import Tables

MOST_ENTRIES: Final = 1 << 19
"""Pairs and buckets of an answer, about 14 MB, after which it ends before the rest of its run. It may have
those of one more part of a search: two million pairs, or all of a page. With `compared=0`, thousands of pages
of a flood have all of its anchors each."""


class Answerer:
    """Answers from the tables of a segment."""

    def __init__(
        self,
        segment: Segment,
        tables: Tables,
        records: AnchorReader,
        rule: Rule,
        most: int | None = None,
        base: int = 0,
    ) -> None:
        """`records` has the anchors of the segment. At most `most` pairs of a page are listed,
        by default as many as a judge selects; with more, an answer stays good while more of them die.
        Anchors have their numbers in tables and records, plus `base`."""
        self._segment, self._rule, self._base = segment, rule, base
        self._most = max(rule.selected, most or 0)
        # One more tells that there are more.
        self._searched = min(self._most + 1, ALL.most)
        self._search = TablesSearch(tables, records, rule, self._searched)

    def answer(
        self,
        run: Run,
        ids: NDArray[np.int64],
        pages: FingerprintedPages,
        decided: int,
        keys: TableKeys | None = None,
    ) -> Answer:
        """Return the answer about the n pages of a run of records that have a fingerprint, or about the first
        of them if it would have more than MOST_ENTRIES. `ids` are their packed ids (n,), ascending; `decided`
        is the position up to which the tables have deaths. `keys` are those of the pages, if the caller has
        them."""
        rule, entries = self._rule, 0
        wanted = ALL._replace(most=self._searched, within=rule.within(pages.status))
        pairs, cut, counts = [], [np.zeros(0, np.int64)], [BucketCounts.none()]
        for first, compared in self._search.search(ids, pages, lambda: wanted, keys):
            some = slice(first, first + len(compared.ends))
            listed, more = self._listed(compared, wanted.within[some])
            cut.append(ids[some][more])
            pairs.append(self._pairs(compared, ids[some], listed))
            counts.append(_counts(compared, ids[some]))
            entries += len(listed) + len(counts[-1].page)
            if entries >= MOST_ENTRIES and some.stop < len(ids):
                run = Run.between(run.first, int(ids[some.stop]))
                break
        return Answer(
            self._segment,
            run,
            decided,
            self._most,
            ListedPairs._make(map(np.concatenate, zip(*pairs, strict=True))),
            np.concatenate(cut),
            BucketCounts._make(map(np.concatenate, zip(*counts, strict=True))),
        )

    def _listed(
        self, compared: Compared, within: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the pairs that are listed, and the rows of which some are not."""
        row, anchor = compared.candidates.row, compared.candidates.anchor
        near = np.flatnonzero(compared.candidates.distance <= within[row])
        sizes = np.bincount(row[near], minlength=len(within))
        if not len(near) or sizes.max() <= self._most:
            return near, np.zeros(0, np.int64)
        kept = nearest_alive(
            np.cumsum(sizes),
            anchor[near],
            compared.candidates.distance[near],
            compared.rank[near],
            ALL._replace(most=self._most, within=within),
        )
        return near[kept], np.flatnonzero(sizes > self._most)

    def _pairs(self, compared: Compared, ids: NDArray[np.int64], listed: NDArray[np.int64]) -> ListedPairs:
        candidates = compared.candidates
        return ListedPairs(
            ids[candidates.row[listed]],
            candidates.anchor[listed] + self._base,
            candidates.distance[listed],
            compared.rank[listed],
            compared.similarity[listed],
            compared.similar[listed],
        )


def _counts(compared: Compared, ids: NDArray[np.int64]) -> BucketCounts:
    sizes, triples = compared.candidates.bucket_sizes, compared.candidates.triples
    if sizes is None:
        return BucketCounts.none()
    tables = sizes.shape[1]
    counts = sizes.ravel()
    place = np.flatnonzero(counts != 0)  # several times as fast as `nonzero` of two dimensions
    rows, buckets = np.divmod(place, tables)
    size = counts[place].astype(np.int64)
    if len(triples.row):
        rows, buckets = (
            np.concatenate([rows, triples.row]),
            np.concatenate([buckets, tables + triples.triple]),
        )
        size = np.concatenate([size, triples.sizes])
        order = np.lexsort((buckets, rows))
        order = order[size[order] > 0]
        rows, buckets, size = rows[order], buckets[order], size[order]
    return BucketCounts(ids[rows], buckets, size)

"""The candidates of a page in a state directory, by their definition, for `neardup explain`.

The whole log of anchors is read, in less than a tenth of a second for a million. So no tables are needed,
and a judge or a scan may be running.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.lanes import distances, first_words, from_integers
from stream.fingerprint.sketch import SketchPairs
from stream.judge.explain.explain import ExplainedPage
from stream.judge.rule import Rule
from stream.judge.state.baselines import Baseline
from stream.judge.state.reader import StateReader
from stream.tables.arrays import I64, U64
from stream.tables.reserves.keys import BUCKETS, PAIRS, keys_of_reserves
from stream.tables.search.rank import ranks_of
from stream.tables.store.anchors import StoredAnchors


class Candidates(NamedTuple):
    """The m live anchors within the distance of a page that share a bucket with it: those of the least rank
    first, of equal rank the oldest (rule 18)."""

    anchor: I64
    distance: NDArray[np.uint8]

    def place_of(self, anchor: int) -> int | None:
        """The place of an anchor among them, from 1; None if it is none of them."""
        return next((int(place) + 1 for place in np.flatnonzero(self.anchor == anchor)), None)


class Match(NamedTuple):
    """The best of the anchors that a page is compared with."""

    anchor: Baseline
    similarity: int
    """In ten-thousandths; NO_SIMILARITY in strict mode."""
    alike: bool
    """Whether it makes the page a duplicate. If not, it is the one that the page is nearest to."""


def candidates_of(
    page: ExplainedPage,
    records: StateReader,
    rule: Rule,
    before: int | None = None,
    superseded: int | None = None,
) -> Candidates | None:
    """Return the candidates of a page among the anchors whose pages are older than the one with the id
    `before`, without the one that the page supersedes. None if too little is known of the page: its sketch;
    or, of a page without text, whether it is short, where that counts."""
    options = rule.options
    if page.sketch is None and not options.strict:
        return None
    if page.tokens is None and options.short_distance:
        return None
    prints, within = from_integers([page.fingerprint], rule.scheme.width), rule.largest_distance(page.status)
    words, design = rule.table_words(prints, _sketches(page)), rule.design()
    anchors = StoredAnchors(records.store, design.words)
    numbers, rows, in_reserves, further = (
        [np.zeros(0, np.int64)],
        [np.zeros((0, design.words + 1), np.uint64)],
        [np.zeros(0, np.bool_)],
        False,
    )
    for first, some in anchors.log.slices(records.first.anchors, anchors.log.count):
        shared = _shared_tables(some[:, :-1], words[0, : design.words], rule)
        reserved = np.zeros(len(some), np.bool_)
        skips = anchors.skipped.entries(first, first + len(some))
        place = skips.numbers - first
        if len(place):
            stayed_out = place[shared[place] & skips.masks != 0]
            further |= bool(_older(first + stayed_out, before, records).any())
            shared[place] &= ~skips.masks
            both = np.column_stack([some[place, :-1], anchors.skipped.further(skips.numbers)])
            reserved[place] = (_shared_reserves(both, words) & skips.masks != 0) & (shared[place] == 0)
        near = np.bitwise_count(some[:, -1] ^ first_words(prints)) <= within
        kept = np.flatnonzero(near & ((shared != 0) | reserved))
        kept = kept[~anchors.dead.test(first + kept) & (first + kept != superseded)]
        numbers.append(first + kept)
        rows.append(some[kept])
        in_reserves.append(reserved[kept])
    anchor, others = np.concatenate(numbers), np.concatenate(rows)
    chosen = np.flatnonzero(_older(anchor, before, records) & (~np.concatenate(in_reserves) | further))
    anchor, others = anchor[chosen], others[chosen]
    distance = np.bitwise_count(others[:, -1] ^ first_words(prints))
    if prints.shape[1] > 1:  # of which the log has the first word only
        distance = distances(records.anchors(anchor).fingerprint, prints)
    row = np.flatnonzero(distance <= within)
    distance = distance[row].astype(np.uint8)
    rank = ranks_of(distance, words, np.zeros(len(row), np.int64), others, row)
    order = np.lexsort((anchor[row], rank))
    return Candidates(anchor[row][order], distance[order])


def best_match(page: ExplainedPage, candidates: Candidates, records: StateReader, rule: Rule) -> Match | None:
    """Return the best of the candidates that the page is compared with, if there is one."""
    order = np.argsort(candidates.anchor[: rule.compared])
    anchors, distance = records.anchors(candidates.anchor[order]), candidates.distance[order]
    pairs = SketchPairs(
        _sketches(page), np.zeros(len(order), np.int64), anchors.sketch, np.arange(len(order))
    )
    similarity = rule.similarities(pairs)
    if not len(order):
        return None
    alike = similarity >= rule.least(pairs)
    best = int(np.lexsort((distance, -similarity, ~alike))[0])  # of equal ones the oldest
    return Match(records.anchor(int(anchors.number[best])), int(similarity[best]), bool(alike[best]))


def _sketches(page: ExplainedPage) -> U64:
    """The sketch of a page, as (1, lanes)."""
    return np.frombuffer(page.sketch or b"", "<u8").astype(np.uint64)[None]


def _shared_tables(words: U64, own: U64, rule: Rule) -> U64:
    """Bit masks (m,) of the tables in which each key has the prefix of a page with the key `own` (W,)."""
    shared = np.zeros(len(words), np.uint64)
    for table, mask in enumerate(rule.design().prefix_masks):
        equal = ((words ^ own) & mask == 0).all(axis=1)
        shared |= equal.astype(np.uint64) << np.uint64(table)
    return shared


def _shared_reserves(words: U64, own: U64) -> U64:
    """Bit masks (m,) of the reserves of pages by their minima that are those of `own` (1, W), above the
    tables."""
    shared = keys_of_reserves(np.ascontiguousarray(words)) == keys_of_reserves(own)
    bits = np.uint64(1) << np.arange(PAIRS, BUCKETS, dtype=np.uint64)
    made: U64 = np.where(shared, bits, np.uint64(0)).sum(axis=1, dtype=np.uint64)
    return made


def _older(anchors: I64, before: int | None, records: StateReader) -> NDArray[np.bool_]:
    """Whether the page of each anchor (n,) is older than the one with this id, if any."""
    if before is None:
        return np.ones(len(anchors), np.bool_)
    older: NDArray[np.bool_] = records.anchors(anchors).page < before
    return older

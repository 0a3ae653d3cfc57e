"""Judges a page as if one other page were the only one before it, by the loop that judges batches.

Both pages are one batch. As nothing is stored, neither tables nor a state are needed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.lanes import from_integers
from stream.fingerprint.row import FINGERPRINTED, Status
from stream.judge.decision.batch_anchors import Buckets, StoredBuckets, shared_buckets
from stream.judge.decision.bucket_collisions import collisions
from stream.judge.decision.decide_rows_compiled import (
    Baselines,
    Course,
    FingerprintedRows,
    Given,
    Limits,
    StoredCandidates,
    VerdictColumns,
    settle,
)
from stream.judge.rule import Rule
from stream.messages.verdict import Verdict
from stream.tables.reserves.keys import RESERVES
from stream.tables.search.prefixes_compiled import keys_of
from stream.tables.search.result import ProbedReserves


class PairPage(NamedTuple):
    """One of the two pages."""

    status: Status
    fingerprint: int
    sketch: bytes
    skipped: int = 0
    """Bit mask of the tables that it did not enter as an anchor, and above these of the reserves that it did
    (rule 16)."""


def judge_pair(first: PairPage, second: PairPage, rule: Rule, *, same_url: bool) -> Verdict:
    """Return the verdict on the second page. Raises SettingsError if the rule allows no tables."""
    if second.status not in FINGERPRINTED:
        return Verdict.REJECTED if second.status == Status.REJECTED else Verdict.INSUFFICIENT
    pages = [each for each in (first, second) if each.status in FINGERPRINTED]
    rows, none = len(pages), np.zeros(0, np.int64)
    fingerprints = from_integers([each.fingerprint for each in pages], rule.scheme.width)
    sketches = np.frombuffer(b"".join(each.sketch for each in pages), "<u8").astype(np.uint64)
    given = Given(
        FingerprintedRows(
            place=np.arange(rows),
            page=np.arange(rows),
            sketch=sketches.reshape(rows, -1),
            within=np.array([rule.largest_distance(each.status) for each in pages]),
            url=np.zeros(rows, np.int64) if same_url else np.arange(rows),
            baseline=np.full((2, rows), -1),
            newer=np.zeros((2, rows), np.int64),
            similar=np.zeros((2, rows), np.bool_),
            distance=np.zeros((2, rows), np.int64),
            similarity=np.zeros((2, rows), np.int64),
        ),
        Baselines(page=none, cluster=none, anchor=none, dies=none, buckets=none, ends=np.zeros(1, np.int64)),
        StoredCandidates(
            ends=np.zeros(rows + 1, np.int64),
            page=none,
            distance=np.zeros(0, np.uint8),
            rank=np.zeros(0, np.uint8),
            reserve=np.zeros(0, np.bool_),
            similarity=none,
            dies=none,
        ),
        Limits.of(rule),
    )
    verdicts = VerdictColumns.blank(rows)
    buckets = _buckets(pages, fingerprints, given.rows.sketch, rule)
    settle(given, buckets, verdicts, Course.blank(rows), 0, rows, rows)
    return Verdict(int(verdicts.verdict[-1]))


def _buckets(
    pages: list[PairPage], fingerprints: NDArray[np.uint64], sketches: NDArray[np.uint64], rule: Rule
) -> Buckets:
    """Return the buckets that one of the pages enters and another probes, without those that the first one
    stayed out of."""
    rows, cap = len(pages), rule.search_options().cap
    words = rule.table_words(fingerprints, sketches)
    keys = keys_of(words, rule.design().pieces)
    stored = None
    if cap is not None:
        kept_out = pages[0].skipped >> np.arange(keys.shape[1]) & 1 != 0
        further = (keys == keys[0]) & kept_out
        of_reserves = np.zeros((rows, RESERVES), np.int64)
        stored = StoredBuckets(
            np.zeros(keys.shape, np.int64), ProbedReserves(further.any(axis=1), np.arange(rows), of_reserves)
        )
    buckets, _ = shared_buckets(collisions(keys), words, fingerprints, stored, cap)
    first, table = np.divmod(buckets.cells, buckets.tables)
    unusual = pages[0].skipped >> table.astype(np.uint64) & np.uint64(1) != 0
    entered = (first > 0) | (unusual == (table >= buckets.pairs))
    return buckets._replace(
        pairs=buckets.tables,  # so that the first page enters what is left, as none of it is full
        cells=buckets.cells[entered],
        entered=buckets.entered[entered],
        entered_end=np.searchsorted(buckets.cells[entered], np.arange(rows + 1) * buckets.tables),
        crowd=np.full_like(buckets.crowd, -1),
    )

"""Which pages verdicts hit: those are carried at the end of their lifetime (rule 23)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stream.messages.decision import NO_LONGER_LIVE, OF_ANOTHER_CLUSTER, Decisions
from stream.messages.verdict import CLUSTERED
from stream.tables.arrays import I64, is_among


class Hits(NamedTuple):
    """Numbers of pages that are hit, in no order, possibly several times."""

    anchors: I64
    duplicates: I64


def hits_of(decisions: Decisions, pages: I64) -> Hits:
    """Return what decisions about N rows with these page ids (N,) hit: each page that a verdict names
    `duplicate_of`, and the anchor of the verdict's cluster, unless that is the row's own page."""
    codes = np.frombuffer(decisions.codes, np.uint8)
    rows = np.flatnonzero(is_among(decisions.verdict, CLUSTERED))
    apart = codes[rows] & OF_ANOTHER_CLUSTER > 0
    numbers, anchors = (np.frombuffer(each, "<i8") for each in (decisions.numbers, decisions.anchors))
    others = (np.frombuffer(decisions.clusters, "<i8") != pages[rows[apart]]) & (anchors != NO_LONGER_LIVE)
    return Hits(np.append(numbers[~apart], anchors[others]), numbers[apart])

"""Queries for the anchors that match a page. Nothing is inserted, superseded or published."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stream.fingerprint.row import Row
from stream.judge.decision.candidates_compared import FingerprintedPages, compare
from stream.judge.ids import show
from stream.judge.judge import Judge


def matching_anchors(judge: Judge, rows: Sequence[Row]) -> list[list[dict[str, Any]]]:
    """Return for each row its matching live anchors, best first, as dicts of `url`, `id`, `distance` and
    `similarity`.

    Only the candidates that a judged page would be compared with are considered (rule 18).
    """
    matches: list[list[dict[str, Any]]] = [[] for _ in rows]
    ready = [i for i, row in enumerate(rows) if row.ready]
    if not ready:
        return matches
    state, rule = judge.state, judge.rule
    pairs = compare(state, rule, FingerprintedPages.of([rows[i] for i in ready], rule.scheme))
    candidates, anchors, place = pairs.candidates, pairs.anchors, pairs.place
    for i in pairs.best_first(np.flatnonzero(pairs.similar)).tolist():
        matches[ready[int(candidates.row[i])]].append(
            {
                "url": anchors.url(int(place[i])),
                "id": show(judge.genesis.journal, int(anchors.page[place[i]])),
                "distance": int(candidates.distance[i]),
                "similarity": rule.published(int(pairs.similarity[i])),
            }
        )
    return matches

"""Figures as CSV for spreadsheets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from stream.dashboard.answers import Changes, ClusterFigures, Clusters, Figures, Hosts, Lag, Verdicts
from stream.messages.verdict import NearestPage, VerdictRecord
from stream.pages.times import to_the_second
from stream.sinks import csv_text
from stream.sinks.csv_text import Cell, Rows

LIKE: Final = ("duplicate", "recrawl")
"""The kinds of verdicts that have a distance and a similarity."""


def text_of(header: Sequence[str], rows: Rows) -> str:
    """Return the CSV of rows below a header."""
    return csv_text.text_of(chain([header], rows))


def series(figures: Figures) -> str:
    """Return the verdicts over time."""
    kinds = list(figures.series.verdicts)
    columns = figures.series.verdicts.values()
    rows = ([to_the_second(at), *pages] for at, *pages in zip(figures.series.time, *columns, strict=True))
    return text_of(["time", *kinds], rows)


def distances(figures: Figures) -> str:
    """Return duplicates and recrawls by distance, in bits."""
    return _histogram(figures.distances, "distance_bits", 64, 1)


def similarities(figures: Figures) -> str:
    """Return duplicates and recrawls by similarity, from 0.00 to 1.00."""
    return _histogram(figures.similarities, "similarity", 101, 100)


def _histogram(histograms: dict[str, list[int]], name: str, size: int, parts: int) -> str:
    columns = [histograms.get(kind) or [0] * size for kind in LIKE]
    places = [place if parts == 1 else place / parts for place in range(size)]
    return text_of([name, *LIKE], zip(places, *columns, strict=True))


def reasons(figures: Figures) -> str:
    """Return rejected pages by reason."""
    return text_of(["reason", "pages"], figures.reasons.items())


FIGURES: Final = {
    "series": series, "distances": distances, "similarities": similarities, "reasons": reasons,
}  # fmt: skip
"""Part of the figures -> what writes it."""


def hosts(answer: Hosts) -> str:
    """Return hosts with their verdicts."""
    kinds = sorted({kind for each in answer.hosts for kind in each.verdicts})
    rows: Rows = (
        (each.host, each.pages, *(each.verdicts.get(kind, 0) for kind in kinds)) for each in answer.hosts
    )
    return text_of(["host", "pages", *kinds], rows)


def clusters(answer: Clusters) -> str:
    """Return clusters with their sizes, and the pages that are kept."""
    header = ["cluster", "anchor", "pages", "superseded", "kept", "because"]
    return text_of(header, map(_cluster, answer.clusters))


def _cluster(each: ClusterFigures) -> Sequence[Cell]:
    kept = (each.kept.url, each.kept.because) if each.kept else (None, None)
    return each.cluster, each.anchor, each.pages, str(each.superseded).lower(), *kept


def verdicts(answer: Verdicts) -> str:
    """Return verdicts, newest first."""
    header = ["decided_at", "verdict", "url", "duplicate_of"]
    header += ["distance", "similarity", "reason", "cluster", "id", "nearest", "nearest_similarity"]
    return text_of(header, (_verdict(each.verdict) for each in answer.verdicts))


def _verdict(each: VerdictRecord) -> Sequence[Cell]:
    like = each.duplicate_of.url if each.duplicate_of else None
    nearest = each.nearest if isinstance(each.nearest, NearestPage) else None
    figures, ids = (each.distance, each.similarity), (each.cluster, each.id)
    near = nearest.url if nearest else None, nearest.similarity if nearest else None
    return each.decided_at, each.verdict, each.url, like, *figures, each.reason, *ids, *near


def lag(answer: Lag) -> str:
    """Return lag over time: a row for each step of each role or partition."""
    return text_of(["time", "role", "partition", "lag_seconds", "lag_records"], _lag_rows(answer))


def _lag_rows(answer: Lag) -> Iterator[Sequence[Cell]]:
    for each in (*answer.roles, *answer.partitions):
        for at, seconds, records in zip(answer.time, each.lag_seconds, each.lag_records, strict=True):
            if records is not None:
                yield [to_the_second(at), each.role, each.partition, seconds, records]


def changes(answer: Changes) -> str:
    """Return restarts and rebalances."""
    rows = ([to_the_second(each.at), each.role, each.kind, each.detail] for each in answer.changes)
    return text_of(["time", "role", "kind", "detail"], rows)

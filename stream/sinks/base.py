"""Interface of export targets: a table of verdicts, and the position up to which they were exported."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from stream.errors import NeardupError
from stream.messages.verdict import NearestPage, Origin, VerdictRecord

COLUMNS: Final = {
    "id": "VARCHAR NOT NULL",
    "url": "VARCHAR",
    "verdict": "VARCHAR NOT NULL",
    "change": "VARCHAR",
    "cluster": "VARCHAR",
    "duplicate_of_url": "VARCHAR",
    "duplicate_of_id": "VARCHAR",
    "distance": "INTEGER",
    "similarity": "DOUBLE PRECISION",
    "fingerprint": "VARCHAR",
    "text_hash": "VARCHAR",
    "scheme": "VARCHAR NOT NULL",
    "source_topic": "VARCHAR NOT NULL",
    "source_topic_id": "VARCHAR NOT NULL",
    "source_partition": "INTEGER NOT NULL",
    "source_offset": "BIGINT NOT NULL",
    "fetched_at": "TIMESTAMPTZ",
    "decided_at": "TIMESTAMPTZ NOT NULL",
    "reason": "VARCHAR",
    "origin_file": "VARCHAR",
    "origin_place": "VARCHAR",
    "nearest_url": "VARCHAR",
    "nearest_id": "VARCHAR",
    "nearest_similarity": "DOUBLE PRECISION",
}
"""Columns and their types. New ones come last: tables of earlier versions get them."""


class ExportError(NeardupError):
    """The target of an export cannot be opened or written; the message names it."""


class Sink(abc.ABC):
    """An export target that stores verdicts together with the export's position in the verdicts topic."""

    @abc.abstractmethod
    def offsets(self, topic_id: str) -> dict[int, int]:
        """Return the next offset to export, by partition of the verdicts topic. `topic_id` is 32 hex digits.
        Raises ExportError."""

    @abc.abstractmethod
    def topics(self) -> set[str]:
        """Return the ids of all topics that verdicts were exported from. Raises ExportError."""

    @abc.abstractmethod
    def append(self, rows: Sequence[VerdictRecord], topic_id: str, offsets: Mapping[int, int]) -> None:
        """Store rows and the offsets after them atomically. Raises ExportError."""

    def flush(self) -> None:  # noqa: B027 - most sinks have nothing to do
        """Make everything appended so far durable. Raises ExportError."""

    @abc.abstractmethod
    def close(self) -> None:
        """Complete the export and release the target. Raises ExportError."""


def values_of(row: VerdictRecord) -> tuple[Any, ...]:
    """Return the values of `COLUMNS` for a verdict, in their order."""
    other, source = row.duplicate_of, row.source
    origin = row.origin if isinstance(row.origin, Origin) else None
    nearest = row.nearest if isinstance(row.nearest, NearestPage) else None
    return (
        row.id,
        row.url,
        row.verdict,
        row.change,
        row.cluster,
        other.url if other else None,
        other.id if other else None,
        row.distance,
        row.similarity,
        row.fingerprint,
        row.text_hash,
        row.scheme,
        source.topic,
        source.topic_id,
        source.partition,
        source.offset,
        _moment(row.fetched_at),
        _moment(row.decided_at),
        row.reason,
        origin.file if origin else None,
        origin.place if origin else None,
        nearest.url if nearest else None,
        nearest.id if nearest else None,
        nearest.similarity if nearest else None,
    )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)

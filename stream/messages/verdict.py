"""What is published for every page. The contract of other programs: `schemas/verdict.schema.json`."""

from __future__ import annotations

import enum
from datetime import UTC, datetime
from typing import Final

import msgspec

VERSION: Final = 1


class Verdict(enum.IntEnum):
    """Codes of the decisions log; the JSON carries the lower-case names."""

    UNIQUE = 1
    DUPLICATE = 2
    RECRAWL = 3
    INSUFFICIENT = 4
    REJECTED = 5


VERDICTS: Final = tuple(each.name.lower() for each in Verdict)
"""Verdicts as JSON, headers, metrics and options name them."""


class Change(enum.IntEnum):
    """What happened to the page's URL; NONE (JSON null) for pages without a fingerprint."""

    NONE = 0
    NEW = 1
    UNCHANGED = 2
    CHANGED = 3


class PageRef(msgspec.Struct, frozen=True):
    """A page by its URL and id."""

    url: str
    id: str


class Source(msgspec.Struct, frozen=True):
    """Where the page message lies."""

    topic: str
    topic_id: str
    partition: int
    offset: int


class VerdictRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One page's verdict."""

    v: int = VERSION
    id: str
    """`journal.offset.index`: 8 hex digits, then two decimal numbers."""
    url: str | None
    verdict: str
    change: str | None
    cluster: str | None
    """The id of the cluster's anchor."""
    duplicate_of: PageRef | None
    """The similar anchor of another URL; for `recrawl` the URL's own baseline page."""
    distance: int | None
    """Hamming distance to `duplicate_of`."""
    similarity: float | None
    """Estimated Jaccard similarity to `duplicate_of`; null in strict mode."""
    fingerprint: str | None
    """width / 4 hex digits."""
    text_hash: str | None
    """32 hex digits: xxh3-128 of the normalised text."""
    scheme: str
    source: Source
    fetched_at: str | None
    decided_at: str
    reason: str | None


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a cluster's anchor; compacted by `cluster`."""

    v: int = VERSION
    cluster: str
    url: str
    state: str
    """`superseded`: the URL's page now says something else."""
    by: str
    """Id of the page that changed it."""
    decided_at: str


def rfc3339(milliseconds: int) -> str:
    """UTC time of that many milliseconds since the epoch."""
    moment = datetime.fromtimestamp(milliseconds // 1000, UTC).replace(tzinfo=None)
    # Not strftime: its %Y does not pad years below 1000 everywhere.
    return f"{moment.isoformat()}.{milliseconds % 1000:03d}Z"

"""Records of the `verdicts` and `clusters` topics. Their schemas are in `schemas/`."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

VERSION: Final = 1
DIGEST_HEADER: Final = "digest"
"""Record header of `clusters` and `best` with the keyed digest of the page's URL key, 16 bytes, as records of
`requests` have it in hex; absent where no page is named."""


class Verdict(enum.IntEnum):
    """Verdict codes of the decisions topic. In JSON, verdicts are the names in lower case."""

    UNIQUE = 1
    DUPLICATE = 2
    RECRAWL = 3
    INSUFFICIENT = 4
    REJECTED = 5


CLUSTERED: Final = (Verdict.DUPLICATE, Verdict.RECRAWL)
"""Verdicts that join the cluster of an earlier page."""
VERDICTS: Final = tuple(each.name.lower() for each in Verdict)
"""Names of the verdicts in JSON, headers, metrics and options."""


class Change(enum.IntEnum):
    """Whether the page's URL is new or its content changed; NONE (JSON null) for pages without a
    fingerprint."""

    NONE = 0
    NEW = 1
    UNCHANGED = 2
    CHANGED = 3


class PageRef(msgspec.Struct, frozen=True):
    """Reference to a page."""

    url: str
    id: str


class NearestPage(msgspec.Struct, frozen=True):
    """The page that a unique page is nearest to."""

    url: str
    id: str
    similarity: float
    """Estimated Jaccard similarity, too low for a duplicate."""


class MessagePosition(msgspec.Struct, frozen=True):
    """Position of a page message in Kafka."""

    topic: str
    topic_id: str
    partition: int
    offset: int


class Origin(msgspec.Struct, frozen=True):
    """Where a scan read a page."""

    file: str
    """The file as its source was named; `-` for standard input."""
    place: str | None
    """`line 12`, `row 12`, `record at byte 81920`, or `page 12` of a file that was fingerprinted before; None
    for a saved page."""

    def __str__(self) -> str:
        return self.file if self.place is None else f"{self.file} {self.place}"


class VerdictRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one page."""

    v: int = VERSION
    id: str
    """`journal.offset.index`: 8 hex digits, then two decimal numbers."""
    url: str | None
    verdict: str
    change: str | None
    cluster: str | None
    """Page id of the cluster's anchor."""
    duplicate_of: PageRef | None
    """The matching anchor of another URL; for `recrawl` the earlier page of the same URL."""
    distance: int | None
    """Hamming distance to `duplicate_of`; None with `disclosure=public`."""
    similarity: float | None
    """Estimated Jaccard similarity to `duplicate_of`: four decimals, or two with `disclosure=public`; None in
    strict mode."""
    nearest: NearestPage | msgspec.UnsetType = msgspec.UNSET
    """Of a unique page alone: the most similar anchor that it was compared with, if its similarity is at
    least the verdict option `evidence`. Never with `disclosure=public`."""
    fingerprint: str | None
    """`width / 4` hex digits; None with `disclosure=public`."""
    text_hash: str | None
    """32 hex digits: a keyed hash of the normalised text."""
    scheme: str
    source: MessagePosition
    fetched_at: str | None
    decided_at: str
    reason: str | None
    origin: Origin | msgspec.UnsetType = msgspec.UNSET
    """Of a scan alone."""


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A change of state of a cluster's anchor. The topic is compacted by `cluster`."""

    v: int = VERSION
    cluster: str
    url: str
    state: str
    """`superseded`: the content of the anchor's URL changed, so the anchor no longer matches."""
    by: str
    """Id of the page with the changed content."""
    decided_at: str

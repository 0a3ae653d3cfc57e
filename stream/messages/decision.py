"""Records of the `decisions` topic: what the judge decided, so that nothing is decided twice (rule 8).

`schemas/decisions.md` describes their layout.
"""

from __future__ import annotations

from typing import Final

import msgspec

from stream.errors import RecordError

VERSION: Final = 1
NOT_ADMITTED: Final = 0
"""Verdict code of a row that was dropped as redelivered, or ignored because it follows a source gap."""


class SourceProgress(msgspec.Struct, frozen=True, array_like=True):
    """The position up to which a source partition has been judged."""

    cluster: str
    topic: str
    topic_id: str
    partition: int
    expected: int
    """The next source offset to judge."""
    lost: int
    """Offsets that retention deleted before a worker read them, as declared so far."""


class Superseded(msgspec.Struct, frozen=True, array_like=True):
    """An anchor that no longer matches, because the page of its URL changed."""

    row: int
    """Index, among all rows of the decided range, of the page that superseded the anchor."""
    anchor: int
    """Anchor number."""


class Decisions(msgspec.Struct, frozen=True, kw_only=True, tag="decisions", tag_field="kind"):
    """The decisions about the N rows in journal records `start` up to `end`."""

    version: int = VERSION
    journal: str
    options: str
    """`VerdictOptions.id` of the options in force."""
    start: int
    end: int
    """Exclusive."""
    last: bytes
    """Digest of the journal record at `end - 1`."""
    time: int
    """Log time after that record, in milliseconds since the epoch."""
    sources: list[SourceProgress]
    """Progress of the source partitions that advanced."""
    verdict: bytes
    """N codes of `Verdict`, or NOT_ADMITTED."""
    change: bytes
    """N codes of `Change`."""
    clusters: bytes
    """Packed page ids of cluster anchors, int64 little-endian, one per duplicate or recrawl row."""
    superseded: list[Superseded]
    skipped: list[tuple[int, int]]
    """(row, bit mask of tables) for rows whose anchor was not inserted into full buckets (rule 16)."""


def encode_decisions(decisions: Decisions) -> bytes:
    """Encode a record of the decisions topic."""
    return _ENCODER.encode(decisions)


def decode_decisions(value: bytes, offset: int) -> Decisions:
    """Decode the record at `offset` of the decisions topic. Raises RecordError."""
    try:
        decisions = _DECODER.decode(value)
        if decisions.version != VERSION:
            raise ValueError(f"version {decisions.version}; this program reads {VERSION}")
        if len(decisions.verdict) != len(decisions.change):
            raise ValueError("columns differ in length")
        if len(decisions.clusters) % 8:
            raise ValueError("the length of clusters is not a multiple of 8 bytes")
    except (msgspec.DecodeError, ValueError) as error:
        raise RecordError(f"decisions offset {offset}: {error}") from error
    return decisions


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Decisions)

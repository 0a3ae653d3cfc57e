"""Records of the `decisions` topic: what a judge decided, so that nothing is ever decided twice (rule 8).

Layout in `schemas/decisions.md`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from stream.errors import RecordError

VERSION: Final = 1
NOT_ADMITTED: Final = 0
"""Verdict code of a row that was dropped as a re-delivery or ignored behind a gap."""


class SourceProgress(msgspec.Struct, frozen=True, array_like=True):
    """How far a source partition has been judged."""

    cluster: str
    topic: str
    topic_id: str
    partition: int
    expected: int
    """The next source offset to judge."""
    lost: int
    """Offsets that retention took before anybody read them, declared so far."""


class Superseded(msgspec.Struct, frozen=True, array_like=True):
    """An anchor that stopped matching because its URL's page changed."""

    row: int
    """Place, among all rows of the range, of the page that changed it."""
    anchor: int
    """Anchor number."""


class Decisions(msgspec.Struct, frozen=True, kw_only=True, tag="decisions", tag_field="kind"):
    """What was decided of journal records `start` up to `end`; N rows stand in them."""

    version: int = VERSION
    journal: str
    options: str
    """`VerdictOptions.id`: what they were decided by."""
    start: int
    end: int
    """Exclusive."""
    last: bytes
    """Digest of the journal record at `end - 1`."""
    time: int
    """Log time after it, milliseconds since the epoch."""
    sources: list[SourceProgress]
    """Those that changed."""
    verdict: bytes
    """N codes of `Verdict`, or NOT_ADMITTED."""
    change: bytes
    """N codes of `Change`."""
    clusters: bytes
    """Packed page id of the cluster's anchor, int64 little-endian, a duplicate or recrawl row each."""
    superseded: list[Superseded]
    skipped: list[tuple[int, int]]
    """Rows whose anchor did not enter full buckets, each with its bit mask of tables (rule 16)."""


def encode_decisions(decisions: Decisions) -> bytes:
    """The record's value."""
    return _ENCODER.encode(decisions)


def decode_decisions(value: bytes, offset: int) -> Decisions:
    """The record at that offset of the decisions topic. Raises RecordError."""
    try:
        decisions = _DECODER.decode(value)
        if decisions.version != VERSION:
            raise ValueError(f"version {decisions.version}, this program reads {VERSION}")
        if len(decisions.verdict) != len(decisions.change):
            raise ValueError("columns differ in length")
        if len(decisions.clusters) % 8:
            raise ValueError("clusters are not whole numbers of 64 bits")
    except (msgspec.DecodeError, ValueError) as error:
        raise RecordError(f"decisions offset {offset}: {error}") from error
    return decisions


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Decisions)

"""Records of the topic `segments`: the sealed ranges of anchors whose files are in the store of checkpoints.

Their schema is in `schemas/`. The topic is compacted by the first number of the range; a record without a
value says that all anchors of the range have expired.
"""

from __future__ import annotations

from typing import Annotated, Final, NoReturn

import msgspec

from stream.errors import RecordError, StateError
from stream.messages.journal import Genesis
from stream.messages.versions import refuse_other_json_version

VERSION: Final = 1
PARTITIONS: Final = 64
"""Partitions of the topics `segments` and `candidates`."""
NUMBER_BITS: Final = 62
"""The number of an anchor is below 2 to this power."""
SEGMENT_BITS: Final = 48
"""A segment has at most 2 to this power anchors."""
_TURN: Final = 39
"""Odd, and near the golden section of the partitions."""

Hex32 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
Hex16 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Second = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]


class SegmentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A segment: the anchors [first, end), none of which is added any more."""

    v: int = VERSION
    journal: Hex32
    """UUID of the journal."""
    scheme: Hex16
    """Id of its scheme."""
    first: Count
    end: Count
    oldest: Count
    """The first of its anchors that had not expired at `decided`."""
    digest: Sha256
    """SHA-256 of its file, which names the object."""
    size: Count
    """Size of its file."""
    dead: Sha256
    """SHA-256 of the file that lists which of its anchors from `oldest` on were superseded or forgotten at
    `decided`."""
    dead_size: Count
    """Size of that file."""
    decided: Count
    """The next offset of the decisions topic to apply to `dead`."""
    exported_at: Second
    """When its file was stored: UTC, to the second."""

    @property
    def key(self) -> bytes:
        """The record's key."""
        return key_of(self.first)

    @property
    def partition(self) -> int:
        """The partition of the record, and of answers of this segment."""
        return partition_of(self.first, self.end)

    @property
    def object(self) -> str:
        """Name of the object that its file is."""
        return object_of(self.journal, self.digest)

    @property
    def dead_object(self) -> str:
        """Name of the object that lists its dead."""
        return object_of(self.journal, self.dead)


def key_of(first: int) -> bytes:
    """The key of the record of the segment that begins with this anchor."""
    return str(first).encode()


def partition_of(first: int, end: int) -> int:
    """The partition of a segment. Segments of one size take turns, in an order by which the first few are
    spread over members of a group whether these have halves of the partitions or every other one."""
    return first // (end - first) * _TURN % PARTITIONS


def segments_of(journal: str) -> str:
    """Prefix of the names of all objects of a journal's segments, in the store of checkpoints."""
    return f"{journal}/segments"


def object_of(journal: str, digest: str) -> str:
    """Name of the object with this digest."""
    return f"{segments_of(journal)}/{digest}"


def encode_segment(record: SegmentRecord) -> bytes:
    """Encode a record as JSON."""
    return _ENCODER.encode(record)


def decode_segment(key: bytes | None, value: bytes | None, where: str) -> SegmentRecord | int:
    """Decode a record; `where` names it in errors. Returns only the first number for one that says that the
    segment has expired.

    Raises RecordVersionError for another version, and RecordError for what is no such record.
    """

    def refuse(why: object) -> NoReturn:
        raise RecordError(f"{where}: {why}") from None

    try:
        first = int(key or b"")
    except ValueError:
        refuse(f"has the key {key!r}, which is no number")
    if first < 0 or key_of(first) != key:
        refuse(f"has the key {key!r}, which is no number")
    if value is None:
        return first
    try:
        record = _DECODER.decode(value)
    except msgspec.DecodeError as error:
        refuse_other_json_version(value, VERSION, where)
        refuse(error)
    if record.v != VERSION:
        refuse_other_json_version(value, VERSION, where)
    limit = min(1 << NUMBER_BITS, first + (1 << SEGMENT_BITS))
    if not first == record.first <= record.oldest < record.end <= limit:
        refuse(
            f"has the key {first}, and is of anchors [{record.first}, {record.end}), the oldest of which is"
            f" {record.oldest}"
        )
    return record


def refuse_other_origin(record: SegmentRecord, genesis: Genesis, where: str) -> None:
    """Raise StateError for a segment of another journal or scheme; `where` names its record."""
    if other := genesis.other_origin(record.journal, record.scheme):
        raise StateError(
            f"{where}: is of {other}; the topic is that of another deployment: delete it and run"
            " `neardup topics create`"
        )


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(SegmentRecord)

"""Records of the journal: the genesis record, and batches of fingerprinted pages in columnar form.

`schemas/journal.md` describes their layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream.errors import RecordError, SchemeMismatchError
from stream.fingerprint.columns import as_column
from stream.fingerprint.row import Row, Status
from stream.fingerprint.scheme import UNCERTAIN_BITS, Scheme
from stream.fingerprint.seed import PUBLIC_SEED, digest_of
from stream.messages.times import EARLIEST, LATEST
from stream.messages.verdict_options import RecordedOptions, VerdictOptions

VERSION: Final = 1
NO_TIME: Final = -(2**63)
"""`fetched_at` of a page without one."""
MAX_ROWS: Final = 65_535
"""Maximum number of rows in a journal record. The index of a row must fit 16 bits (see `judge.ids`)."""


class SourceRange(msgspec.Struct, frozen=True, array_like=True):
    """The range of offsets of a source partition that some rows of a journal record cover (rule 1)."""

    cluster: str
    topic: str
    topic_id: str
    """Topic id, 32 hex digits. A recreated topic has a new id (rule 4)."""
    partition: int
    start: int
    """First offset: the `end` of the previous range, not the offset of the first page, because compaction and
    transaction markers leave holes between offsets."""
    end: int
    """Exclusive."""
    rows: int
    """Number of rows of the record that belong to this range. Rows are in the order of the ranges."""
    opening: bool = False
    """Whether `start` is the log start of a partition without a committed offset (rule 4)."""
    lost: bool = False
    """Whether this is a declared loss: retention deleted these pages before they were read. `rows` is 0."""
    published: int = 0
    """Kafka timestamp of the oldest page of the range, in milliseconds since the epoch; 0 without pages.

    It serves metrics only and does not affect verdicts.
    """


class _RowsRecord(msgspec.Struct, tag="rows", tag_field="kind", omit_defaults=True):
    """Wire format of `Rows`: msgpack, with columns of numbers as little-endian buffers."""

    version: int
    scheme: str
    ranges: list[SourceRange]
    status: bytes
    fingerprint: bytes
    uncertain: bytes
    sketch: bytes
    text_hash: bytes
    offset: bytes
    fetched_at: bytes
    url: list[str | None]
    url_key: list[str | None]
    key: list[bytes | None]
    reason: list[str | None]
    traceparent: dict[int, str] = {}


class Genesis(msgspec.Struct, frozen=True, kw_only=True, tag="genesis", tag_field="kind"):
    """The first record of the journal. It holds the scheme and options, so that verdicts are a function of
    the journal alone (rules 6 and 11)."""

    version: int = VERSION
    journal: str
    """UUID of the journal, 32 hex digits. Page ids start with the first 8."""
    scheme: Scheme
    scheme_id: str
    options: VerdictOptions
    seed: bytes = PUBLIC_SEED
    """The secret that keys all fingerprints (16 bytes); its digest is part of the scheme."""

    def __repr__(self) -> str:
        """Without the seed, so that no log shows it."""
        return f"Genesis(journal={self.journal!r}, scheme_id={self.scheme_id!r}, options={self.options!r})"


class _GenesisRecord(Genesis, frozen=True, kw_only=True, tag="genesis", tag_field="kind"):
    """Wire format of `Genesis`."""

    options: RecordedOptions


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The n fingerprinted pages of one journal record, in columnar form."""

    scheme: str
    ranges: list[SourceRange]
    status: NDArray[np.uint8]
    """(n,): values of `Status`."""
    fingerprint: NDArray[np.uint64]
    """(n,), or (n, 2) for 128 bits, with the upper 64 bits first."""
    uncertain: NDArray[np.uint8]
    """(n, UNCERTAIN_BITS): bit indexes, least certain first."""
    sketch: NDArray[np.uint64]
    """(n, sketch_bytes / 8)."""
    text_hash: NDArray[np.uint8]
    """(n, 16)."""
    offset: NDArray[np.int64]
    """(n,): offsets in the source partition of the row's range."""
    fetched_at: NDArray[np.int64]
    """(n,): milliseconds since the epoch, or NO_TIME."""
    url: list[str | None]
    url_key: list[str | None]
    key: list[bytes | None]
    """Keys of the page messages, which become the keys of the verdicts."""
    reason: list[str | None]
    traceparent: dict[int, str] = field(default_factory=dict)
    """Row -> `traceparent` of the page message (W3C Trace Context), which is copied to the verdict."""

    def __len__(self) -> int:
        return len(self.url)

    @classmethod
    def of(
        cls,
        scheme: Scheme,
        ranges: list[SourceRange],
        rows: Sequence[Row],
        offsets: Sequence[int],
        keys: Sequence[bytes | None],
        traceparent: Mapping[int, str] | None = None,
    ) -> Self:
        """Convert `rows`, which are in the order of `ranges`, to columns."""
        n, blank = len(rows), bytes(scheme.sketch_bytes)
        if n > MAX_ROWS or n != sum(r.rows for r in ranges):
            raise ValueError(f"{n} rows do not fit ranges {ranges}")
        return cls(
            scheme=scheme.id,
            ranges=ranges,
            status=np.fromiter((r.status for r in rows), np.uint8, n),
            fingerprint=as_column([r.fingerprint for r in rows], scheme.width),
            uncertain=_matrix(b"".join(r.uncertain for r in rows), np.uint8, n, UNCERTAIN_BITS),
            sketch=_matrix(b"".join(r.sketch or blank for r in rows), np.uint64, n, scheme.sketch_bytes // 8),
            text_hash=_matrix(b"".join(r.text_hash for r in rows), np.uint8, n, 16),
            offset=np.fromiter(offsets, np.int64, n),
            fetched_at=np.fromiter(
                (NO_TIME if r.fetched_at is None else r.fetched_at for r in rows), np.int64, n
            ),
            url=[r.url for r in rows],
            url_key=[r.url_key for r in rows],
            key=list(keys),
            reason=[r.reason for r in rows],
            traceparent=dict(traceparent or {}),
        )

    def encode(self) -> bytes:
        """Encode the journal record."""
        return _ENCODER.encode(
            _RowsRecord(
                version=VERSION,
                scheme=self.scheme,
                ranges=self.ranges,
                status=self.status.tobytes(),
                fingerprint=self.fingerprint.astype("<u8").tobytes(),
                uncertain=self.uncertain.tobytes(),
                sketch=self.sketch.astype("<u8").tobytes(),
                text_hash=self.text_hash.tobytes(),
                offset=self.offset.astype("<i8").tobytes(),
                fetched_at=self.fetched_at.astype("<i8").tobytes(),
                url=self.url,
                url_key=self.url_key,
                key=self.key,
                reason=self.reason,
                traceparent=self.traceparent,
            )
        )

    def refuse_foreign(self, genesis: Genesis, where: str) -> None:
        """Check that the rows have the journal's scheme, and the widths of that scheme.

        Raises SchemeMismatchError or RecordError, whose messages start with `where`.
        """
        if self.scheme != genesis.scheme_id:
            raise SchemeMismatchError(
                f"{where}: fingerprints have scheme {self.scheme}, but those of the journal have scheme "
                f"{genesis.scheme_id}"
            )
        if not len(self):
            return
        words, sketch_bytes = self.fingerprint.size // len(self), 8 * self.sketch.shape[1]
        if (words, sketch_bytes) != (-(-genesis.scheme.width // 64), genesis.scheme.sketch_bytes):
            raise RecordError(
                f"{where}: fingerprints of {64 * words} bits and sketches of {sketch_bytes} bytes do not fit "
                f"scheme {self.scheme}"
            )

    @classmethod
    def of_record(cls, record: _RowsRecord) -> Self:
        """The rows of a record as it is encoded. Raises ValueError."""
        n = len(record.url)
        if n > MAX_ROWS or n != sum(r.rows for r in record.ranges):
            raise ValueError("the row counts of the ranges do not add up to the number of rows")
        if not n == len(record.url_key) == len(record.key) == len(record.reason):
            raise ValueError("columns differ in length")
        if not all(0 <= row < n for row in record.traceparent):
            raise ValueError("a traceparent of a row that does not exist")
        if n and (len(record.sketch) % (8 * n) or not record.sketch):
            raise ValueError("sketches differ in size")
        wide = len(record.fingerprint) == 16 * n
        rows = cls(
            scheme=record.scheme,
            ranges=record.ranges,
            status=_matrix(record.status, np.uint8, n),
            fingerprint=_matrix(record.fingerprint, np.uint64, *((n, 2) if n and wide else (n,))),
            uncertain=_matrix(record.uncertain, np.uint8, n, UNCERTAIN_BITS),
            sketch=_matrix(record.sketch, np.uint64, n, len(record.sketch) // (8 * n) if n else 0),
            text_hash=_matrix(record.text_hash, np.uint8, n, 16),
            offset=_matrix(record.offset, np.int64, n),
            fetched_at=_matrix(record.fetched_at, np.int64, n),
            url=record.url,
            url_key=record.url_key,
            key=record.key,
            reason=record.reason,
            traceparent=record.traceparent,
        )
        rows._refuse_unbounded(wide)
        return rows

    def _refuse_unbounded(self, wide: bool) -> None:
        """Check the bounds of numbers, because compiled loops index by them and format times.

        Raises ValueError.
        """
        if (status := int(self.status.max(initial=0))) > max(Status):
            raise ValueError(f"unknown status {status}; the largest is {max(Status):d}")
        times = self.fetched_at
        if ((times > LATEST) | (times < EARLIEST) & (times != NO_TIME)).any():
            raise ValueError("a fetched_at outside the years 0001 to 9999")
        if (bit := int(self.uncertain.max(initial=0))) >= (width := 128 if wide else 64):
            raise ValueError(f"uncertain bit {bit} of a fingerprint of {width} bits")


JournalRecord = Genesis | Rows


def encode_genesis(genesis: Genesis) -> bytes:
    """Encode the first record of the journal."""
    return _ENCODER.encode(genesis)


def decode_journal(value: bytes, offset: int) -> JournalRecord:
    """Decode the journal record at `offset`. Raises RecordError."""
    try:
        record = _DECODER.decode(value)
        if record.version != VERSION:
            raise ValueError(f"version {record.version}; this program reads {VERSION}")
        if isinstance(record, _RowsRecord):
            return Rows.of_record(record)
        if digest_of(record.seed) != record.scheme.seed_digest:
            raise ValueError("the seed is not that of the scheme")
        return Genesis(**{**msgspec.structs.asdict(record), "options": record.options.meant})
    except (msgspec.DecodeError, ValueError) as error:
        raise RecordError(f"journal offset {offset}: {error}") from error


def _matrix(data: bytes, dtype: type, *shape: int) -> NDArray[Any]:
    little_endian = np.dtype(dtype).newbyteorder("<")
    return np.frombuffer(data, little_endian).astype(dtype, copy=False).reshape(shape)


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_GenesisRecord | _RowsRecord)

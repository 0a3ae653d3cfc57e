"""The genesis record, and records of the journal: batches of fingerprinted pages in columnar form.

`schemas/journal.md` describes their layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream.errors import RecordError, SchemeMismatchError
from stream.fingerprint.lanes import from_integers
from stream.fingerprint.parity import LARGEST_SET
from stream.fingerprint.row import Row
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import digest_of
from stream.messages.byte_strings import NO_STRING, StringColumn, starts_of
from stream.messages.row_columns import (
    BOUNDED,
    MAP,
    MAPS,
    NUMBERS,
    STRINGS,
    Column,
    bytes_of,
    numbers_of_bytes,
    numbers_of_rows,
    refuse_unbounded,
)
from stream.messages.verdict_options import VerdictOptions
from stream.messages.versions import refuse_other_version

VERSION: Final = 6
AS_URL: Final = -2
"""Size, in a record, of a string that equals the URL of its row."""
MAX_ROWS: Final = 65_535
"""Maximum number of rows in a journal record. The index of a row must fit 16 bits (see `judge.ids`)."""
LOAD: Final = "load"
"""`topic` of the ranges of loaded rows (rule 21). The topic of pages has a dot in its name."""
LOAD_PARTITIONS: Final = 256
"""Number of pseudo-partitions of loaded rows, which spread over the partitions of the verdicts. A constant:
resumed with another number, a load would give pages a second verdict, and a topic may get partitions at any
time."""


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


class Corpus(msgspec.Struct, frozen=True):
    """The rows that a record was loaded from. Their digest is the topic id of its range."""

    name: str
    rows: int
    """Number of rows of the whole corpus."""


class _RowsHead(msgspec.Struct):
    """The first fields of a record of rows."""

    version: int
    scheme: str
    ranges: list[SourceRange]


def _record_field(column: Column, kind: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    """Return a field of `_RowsRecord`, with an empty default if records may omit it."""
    empty: Any = {} if column.journal == MAP else b""
    return (column.name, kind, empty) if column.omitted == "column" else (column.name, kind)


_RowsRecord = msgspec.defstruct(
    "_RowsRecord",
    [
        *(_record_field(each, bytes) for each, _ in NUMBERS),
        *(_record_field(each, bytes) for each in STRINGS),
        ("strings", bytes),
        *(_record_field(each, dict[int, str]) for each in MAPS),
        ("corpus", Corpus | None, None),
    ],
    bases=(_RowsHead,),
    tag="rows",
    tag_field="kind",
    omit_defaults=True,
    kw_only=True,
)
"""Wire format of `Rows`: msgpack, with columns of numbers as little-endian buffers.

Of strings there are sizes; the strings themselves stand back to back in `strings`.
"""


class Genesis(msgspec.Struct, frozen=True, kw_only=True, tag="genesis", tag_field="kind"):
    """The record that stands before a journal, in a topic of its own. It holds the scheme and options, so
    that verdicts are a function of genesis and journal alone (rules 6 and 11)."""

    version: int = VERSION
    journal: str
    """UUID of the journal, 32 hex digits. Page ids start with the first 8."""
    scheme: Scheme
    scheme_id: str
    options: VerdictOptions
    seed: bytes
    """The secret that keys all fingerprints (16 bytes); its digest is part of the scheme."""

    def __repr__(self) -> str:
        """Without the seed, so that no log shows it."""
        return f"Genesis(journal={self.journal!r}, scheme_id={self.scheme_id!r}, options={self.options!r})"


class StringColumns(NamedTuple):
    """The strings of n rows."""

    url: StringColumn
    key: StringColumn


class Strings(NamedTuple):
    """The strings of the n rows of a record, as they are encoded, since few readers want all of them."""

    sizes: NDArray[np.int32]
    """(2, n): sizes in bytes of URLs and message keys; or NO_STRING, AS_URL."""
    data: bytes
    """The strings with a size, back to back."""

    @classmethod
    def of(cls, url: Sequence[str | None], key: Sequence[bytes | None]) -> Self:
        """Encode strings. A message key that equals the URL of its row takes no bytes, as those of most
        crawlers do."""
        urls = [None if each is None else each.encode() for each in url]
        strings = [each for each in urls if each]
        sizes = [NO_STRING if each is None else len(each) for each in urls]
        if key == urls:
            sizes += [AS_URL] * len(urls)
        else:
            pairs = list(zip(key, urls, strict=True))
            strings += [own for own, of_row in pairs if own and own != of_row]
            sizes += [
                AS_URL if own == of_row else NO_STRING if own is None else len(own) for own, of_row in pairs
            ]
        return cls(np.array(sizes, "<i4").reshape(2, -1), b"".join(strings))

    @classmethod
    def of_record(cls, fields: Mapping[str, Any], n: int) -> Self:
        """Return the strings of a record with n rows. Raises ValueError."""
        data: bytes = fields["strings"]
        sizes = np.frombuffer(b"".join([fields[each.name] for each in STRINGS]), "<i4")
        sizes = sizes.astype(np.int32, copy=False).reshape(len(STRINGS), n)
        if sizes.min(initial=0) < AS_URL or sizes[0].min(initial=0) == AS_URL:
            raise ValueError("a size of a string that means nothing")
        own = np.maximum(sizes, 0)
        if int(own.sum(dtype=np.int64)) != len(data):
            raise ValueError("the sizes of the strings do not add up to their bytes")
        if not data.isascii():
            text = data[: int(own[0].sum(dtype=np.int64))]
            text.decode()  # no string ends within a character, unless the next one begins there
            begins = starts_of(own[0])[own[0] > 0]
            if ((np.frombuffer(text, np.uint8)[begins] & 0xC0) == 0x80).any():
                raise ValueError("a URL that is not UTF-8")
        return cls(sizes, data)

    def columns(self) -> StringColumns:
        """Find the strings."""
        return columns_of([self])


def columns_of(records: Sequence[Strings]) -> StringColumns:
    """Find the strings of all rows of some records, in one buffer."""
    data = np.frombuffer(bytearray().join(each.data for each in records), np.uint8)
    sizes = np.concatenate([each.sizes.ravel() for each in records]).astype(np.int64)
    starts = starts_of(sizes)
    counts = np.array([each.sizes.shape[1] for each in records], np.int64)
    rows = np.repeat(counts, counts)
    # The URLs of a record come first, then its message keys.
    first = np.arange(len(rows)) + np.repeat(np.cumsum(counts) - counts, counts)
    url = StringColumn(data, starts[first], sizes[first])
    place = np.where(sizes[first + rows] == AS_URL, first, first + rows)
    return StringColumns(url, StringColumn(data, starts[place], sizes[place]))


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The n fingerprinted pages of one journal record, in columnar form."""

    scheme: str
    ranges: list[SourceRange]
    status: NDArray[np.uint8]
    """(n,): values of `Status`."""
    fingerprint: NDArray[np.uint64]
    """(n, lanes), the upper one first."""
    sketch: NDArray[np.uint64]
    """(n, sketch_bytes / 8)."""
    url_digest: NDArray[np.uint8]
    """(n, 16): keyed digests of URL keys; zeros for none."""
    text_hash: NDArray[np.uint8]
    """(n, 16)."""
    length: NDArray[np.uint32]
    """(n,): characters of the normalised text; 0 if rejected."""
    language: NDArray[np.bytes_]
    """(n,): declared language (`Row.language`), empty if unknown."""
    offset: NDArray[np.int64]
    """(n,): offsets in the source partition of the row's range."""
    fetched_at: NDArray[np.int64]
    """(n,): milliseconds since the epoch, or NO_TIME."""
    quality: NDArray[np.float64]
    """(n,): a number that the crawler gives, NaN for none. No verdict depends on it."""
    strings: Strings
    """URLs, and the keys of the page messages, which become the keys of the verdicts."""
    reason: dict[int, str] = field(default_factory=dict)
    """Row -> why the page was rejected."""
    traceparent: dict[int, str] = field(default_factory=dict)
    """Row -> `traceparent` of the page message (W3C Trace Context), which is copied to the verdict."""
    corpus: Corpus | None = None
    """What the rows were loaded from, if a loader wrote them. No verdict depends on it."""

    def __len__(self) -> int:
        return len(self.status)

    @property
    def nbytes(self) -> int:
        """Bytes that the rows take in memory, nearly as many as in the record."""
        numbers: int = sum(getattr(self, each.name).nbytes for each, _ in NUMBERS)
        return len(self.strings.data) + self.strings.sizes.nbytes + numbers

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
        sketches = np.frombuffer(b"".join([r.sketch or blank for r in rows]), "<u8")
        numbers: dict[str, Any] = {
            "fingerprint": from_integers([r.fingerprint for r in rows], scheme.width),
            "sketch": sketches.reshape(n, scheme.sketch_bytes // 8).astype(np.uint64, copy=False),
            "offset": np.fromiter(offsets, np.int64, n),
        }
        for column, dtype in NUMBERS:
            if column.name not in numbers:
                numbers[column.name] = numbers_of_rows(column, dtype, rows)
        return cls(
            scheme=scheme.id,
            ranges=ranges,
            strings=Strings.of([r.url for r in rows], keys),
            reason={row: r.reason for row, r in enumerate(rows) if r.reason is not None},
            traceparent=dict(traceparent or {}),
            **numbers,
        )

    def encode(self) -> bytes:
        """Encode the journal record."""
        columns = {each.name: bytes_of(each, dtype, getattr(self, each.name)) for each, dtype in NUMBERS}
        for each, sizes in zip(STRINGS, self.strings.sizes, strict=True):
            columns[each.name] = sizes.tobytes()
        return _ENCODER.encode(
            _RowsRecord(
                version=VERSION,
                scheme=self.scheme,
                ranges=self.ranges,
                strings=self.strings.data,
                corpus=self.corpus,
                **columns,
                **{each.name: getattr(self, each.name) for each in MAPS},
            )
        )

    def refuse_foreign(self, genesis: Genesis, where: str) -> None:
        """Check that the rows have the journal's scheme, and the columns of that scheme and its options.

        Raises SchemeMismatchError or RecordError, whose messages start with `where`.
        """
        if self.scheme != genesis.scheme_id:
            raise SchemeMismatchError(
                f"{where}: fingerprints have scheme {self.scheme}, but those of the journal have scheme "
                f"{genesis.scheme_id}"
            )
        if not len(self):
            return
        words, sketch_bytes = self.fingerprint.shape[1], 8 * self.sketch.shape[1]
        if (words, sketch_bytes) != (-(-genesis.scheme.width // 64), genesis.scheme.sketch_bytes):
            raise RecordError(
                f"{where}: fingerprints of {64 * words} bits and sketches of {sketch_bytes} bytes do not fit "
                f"scheme {self.scheme}"
            )
        if genesis.scheme.sketch == "parity":
            size = int(self.sketch[:, genesis.scheme.sketch_bins // 64].max())
            if size > LARGEST_SET:
                raise RecordError(f"{where}: a sketch of {size} shingles")

    @classmethod
    def of_record(cls, record: _RowsHead) -> Self:
        """The rows of a record as it is encoded. Raises ValueError."""
        fields = msgspec.structs.asdict(record)
        n = len(fields["status"])
        if n > MAX_ROWS or n != sum(r.rows for r in record.ranges):
            raise ValueError("the row counts of the ranges do not add up to the number of rows")
        columns: dict[str, Any] = {}
        for each, dtype in NUMBERS:
            columns[each.name] = numbers_of_bytes(each, dtype, fields[each.name], n)
        for each in MAPS:
            columns[each.name] = fields[each.name]
            if not all(0 <= row < n for row in columns[each.name]):
                raise ValueError(f"a {each.name} of a row that does not exist")
        rows = cls(
            scheme=record.scheme,
            ranges=record.ranges,
            strings=Strings.of_record(fields, n),
            corpus=fields["corpus"],
            **columns,
        )
        rows._refuse_unbounded()
        return rows

    def _refuse_unbounded(self) -> None:
        """Check the bounds of numbers, because compiled loops index by them and format times.

        Raises ValueError.
        """
        for column, most in BOUNDED:
            refuse_unbounded(column, most, getattr(self, column.name))


JournalRecord = Genesis | Rows


def encode_genesis(genesis: Genesis) -> bytes:
    """Encode the first record of the journal."""
    return _ENCODER.encode(genesis)


def decode_journal(value: bytes, offset: int) -> JournalRecord:
    """Decode the journal record at `offset`. Raises RecordError."""
    value = value or b""  # Kafka has None for a tombstone
    try:
        record: Genesis | _RowsHead = _DECODER.decode(value)
        if record.version != VERSION:
            raise ValueError(f"version {record.version}")
        if isinstance(record, _RowsHead):
            return Rows.of_record(record)
        if digest_of(record.seed) != record.scheme.seed_digest:
            raise ValueError("the seed is not that of the scheme")
        return record
    except (msgspec.DecodeError, ValueError) as error:
        refuse_other_version(value, VERSION, f"journal offset {offset}")
        raise RecordError(f"journal offset {offset}: {error}") from error


_ENCODER = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[Genesis | _RowsHead]] = msgspec.msgpack.Decoder(Genesis | _RowsRecord)

"""Data sets: JSON Lines, CSV and Parquet as sources, where each record is a page, rejected, or damage."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import random
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa
from pyarrow import parquet

from stream.errors import PageError, SettingsError
from stream.pages.columns import Columns
from stream.pages.page import decode_page
from stream.sources import csv_rows
from stream.sources.jsonl import JsonlSource
from stream.sources.source import Source
from stream.sources.table import CsvSource, ParquetSource
from tests.fuzz.decoder import Decoder
from tests.fuzz.mutate import NUMBERS, STRINGS, changed, damaged

LIMIT: Final = 1 << 16
NAMES: Final = (
    "url",
    "text",
    "html",
    "body",
    "fetched_at",
    "quality",
    "id",
    "meta",
    "URL",
    "\ufefftext",
    "a.b",
)
COLUMNS: Final = (
    *(Columns(), Columns(), Columns(place_ids=True), Columns(id="id"), Columns(url="meta.url", text="a.b")),
    Columns(id="id", id_prefix="a/", fetched_at="quality", quality="fetched_at"),
)
TIMES: Final = (
    *("2026-01-02T03:04:05Z", "2026-01-02", "2026-01-02 03:04:05 UTC", "Sat, 03 Feb 2024 04:05:06 GMT"),
    *("1700000000123", "NaN", "NaT", "9" * 30, "0001-01-01T00:00:00+01:00", "Feb Feb 2024 +0000 24:60:61"),
)
WRITTEN: Final = (
    *(
        b"NaN",
        b"-Infinity",
        b"1e999",
        b"[" * 1200 + b"]" * 1200,
        b'"\\udfff"',
        b'{"url": NaN}',
        b"tru",
        b'"\xff"',
    ),
    *(b"1" * 5000, b'"a\tb"', b"{}", b'{"":{"":[]}}', b"", b"[[[", b'"\\', b"-", b"01", b"/**/ 1", b"'a'"),
)


class _DataSets(Decoder):
    """A source of files whose first line is the number of their records, or `-` if they are damaged, and the
    number of their columns' names in COLUMNS."""

    bytes_alone: ClassVar = False
    suffix: ClassVar[str]

    def __enter__(self) -> _DataSets:
        self._path = self.directory() / f"pages.{self.suffix}"
        return self

    def source(self, path: Path, names: Columns) -> Source:
        raise NotImplementedError

    def check(self, data: bytes) -> str:
        head, _, content = data.partition(b"\n")
        made, number = head.split()
        self._path.write_bytes(content)
        source = self.source(self._path, COLUMNS[int(number)])
        source.strict = False
        outcomes = {"judged": 0, "rejected": 0}
        try:
            for message in source:
                try:
                    decode_page(message.value, LIMIT)
                    outcomes["judged"] += 1
                except PageError as error:
                    if not error.reason.isidentifier():
                        raise AssertionError(f"a reason is a name, not {error.reason!r}") from error
                    outcomes["rejected"] += 1
        except SettingsError:
            return "refused"
        assert source.damage_count <= 1
        if made != b"-":
            assert not source.damages, source.damages
            assert sum(outcomes.values()) == int(made), f"{outcomes} of {made!r} records"
        came = [name for name, count in outcomes.items() if count]
        return ", ".join([*came, *(["damage"] if source.damages else [])]) or "nothing"


def _head(made: object, rng: random.Random) -> bytes:
    return f"{made} {rng.randrange(len(COLUMNS))}\n".encode()


class JsonLines(_DataSets):
    """`JsonlSource`, whose lines may be any bytes."""

    name: ClassVar = "json lines"
    suffix: ClassVar = "jsonl"

    def source(self, path: Path, names: Columns) -> Source:
        return JsonlSource(str(path), names)

    def make(self, rng: random.Random) -> bytes:
        lines = [_line(rng) for _ in range(rng.randrange(1, 6))]
        lines = [damaged(rng, each) if rng.random() < 0.2 else each for each in lines]
        lines = [line.replace(b"\n", b" ").replace(b"\r", b" ") for line in lines]
        lines[0] = lines[0].replace(b"[", b"", len(lines[0]) if lines[0].lstrip().startswith(b"[") else 0)
        if not lines[0].strip() or lines[0].strip() == b"{":
            lines[0] = b"{}"
        made: object = sum(1 for each in lines if each.strip(b"\r"))
        end = rng.choice((b"\n", b"\r\n", b"\n\n"))
        data = rng.choice((b"", codecs.BOM_UTF8)) + end.join(lines) + rng.choice((b"", end))
        if (
            b"\0" in data[:4]
            or data[:2] in (b"\xff\xfe", b"\xfe\xff", b"\x1f\x8b", b"BZ")
            or data[1:4] == b"*M\x18"
        ):
            made = "-"
        match rng.randrange(12):
            case 0:
                data = gzip.compress(data, 1)
            case 1:
                made, data = "-", damaged(rng, gzip.compress(data, 1))
            case 2:
                made, data = "-", damaged(rng, data)
            case 3:
                made, data = "-", b"[" + b",".join(lines) + rng.choice((b"]", b"", b"]x"))
            case 4:
                made, data = "-", data.decode("utf-8", "replace").encode(rng.choice(("utf-16", "utf-32")))
        return _head(made, rng) + data


def _line(rng: random.Random) -> bytes:
    row = {name: _value(rng) for name in rng.sample(NAMES, rng.randrange(1, 6))}
    if rng.random() < 0.5:
        row |= {"url": "http://example.com/", "text": "the harbour"}
    if rng.random() < 0.3:
        row = changed(rng, row)
    line = json.dumps(row, ensure_ascii=rng.random() < 0.5, default=repr).encode("utf-8", "surrogatepass")
    if rng.random() < 0.3 and line.endswith(b"}"):
        line = line[:-1] + b', "x": ' + rng.choice(WRITTEN) + b"}"
    return line


def _value(rng: random.Random) -> Any:
    return rng.choice(
        (*STRINGS, *TIMES, *NUMBERS, None, True, 1.5, float("nan"), float("-inf"), {"url": "http://a/"}, [1])
    )


class CsvFiles(_DataSets):
    """`CsvSource`, of all dialects; one copy of the rows is the file."""

    name: ClassVar = "csv"
    suffix: ClassVar = "csv"

    def source(self, path: Path, names: Columns) -> Source:
        return CsvSource(str(path), names)

    def make(self, rng: random.Random) -> bytes:
        names = rng.sample(NAMES, rng.randrange(2, 5))
        if rng.random() < 0.8:
            names = list(dict.fromkeys(["url", "text", *names]))
        rows = [[_cell(rng) for _ in names] for _ in range(rng.randrange(5))]
        rows = [row for row in rows if any(row)]
        file = io.StringIO(newline="")
        writer = csv.writer(
            file,
            delimiter=rng.choice(",;\t|"),
            lineterminator=rng.choice(("\n", "\r\n")),
            quoting=rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL)),
        )
        writer.writerows([names, *rows])
        made: object = len(rows)
        text = file.getvalue()
        match rng.randrange(6):
            case 0:
                data = text.encode("utf-16", "replace")
            case 1:
                data = gzip.compress(text.encode("utf-8", "replace"), 1)
            case _:
                data = text.encode("utf-8", "replace")
        if rng.random() < 0.4:
            made, data = "-", damaged(rng, data)
        return _head(made, rng) + data

    def check(self, data: bytes) -> str:
        came = super().check(data)
        text = self._path.read_bytes().decode("utf-8", "replace")
        try:
            rows = csv_rows.CsvRows(io.StringIO(text, newline="\n"), "pages.csv")
            stored = [rows.header]
            stored += [row.stored for row in rows.all_rows]
        except (PageError, csv.Error):
            return came
        assert "".join(stored) == text
        return came


def _cell(rng: random.Random) -> str:
    letters = "".join(rng.choices("ab\"\n\t,;| '\0\u6e2f", k=rng.randrange(9)))
    return rng.choice((letters, letters, "http://a.example/", *TIMES, "0.5", "\\N", "YQ=="))


KINDS: Final = (
    *(pa.string(), pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()),
    *(
        pa.binary_view(),
        pa.int64(),
        pa.uint64(),
        pa.int8(),
        pa.float64(),
        pa.float32(),
        pa.float16(),
        pa.bool_(),
    ),
    *(pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us", "Europe/Paris"), pa.timestamp("ns", "UTC")),
    *(pa.date32(), pa.date64(), pa.time32("ms"), pa.duration("us"), pa.decimal128(20, 2), pa.null()),
    *(pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.binary()), pa.list_(pa.string())),
    *(pa.struct([("url", pa.string()), ("b", pa.binary())]), pa.map_(pa.string(), pa.int8()), pa.binary(3)),
)


class ParquetFiles(_DataSets):
    """`ParquetSource`, of columns of all types."""

    name: ClassVar = "parquet"
    suffix: ClassVar = "parquet"

    def source(self, path: Path, names: Columns) -> Source:
        return ParquetSource(str(path), names)

    def make(self, rng: random.Random) -> bytes:
        count = rng.randrange(6)
        names = rng.sample(NAMES, rng.randrange(2, 6))
        kinds = {name: rng.choice(KINDS) for name in names}
        if rng.random() < 0.8:
            kinds |= {"url": pa.string(), "text": rng.choice(KINDS[:7])}
        columns = {name: _array(rng, kind, count) for name, kind in kinds.items()}
        sink = io.BytesIO()
        parquet.write_table(
            pa.table(columns),
            sink,
            row_group_size=rng.choice((1, 2, 99)),
            compression=rng.choice(("none", "snappy", "zstd")),
            use_dictionary=rng.random() < 0.5,
        )
        data, made = sink.getvalue(), str(count)
        if rng.random() < 0.4:
            made, data = "-", damaged(rng, data)
        return _head(made, rng) + data


def _array(rng: random.Random, kind: pa.DataType, count: int) -> pa.Array:
    """An array of any values of a type, of which some are null: strings may be no UTF-8."""
    nulls = [rng.random() < 0.2 for _ in range(count)]
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(
            pa.array([None if null else 0 for null in nulls], kind.index_type),
            pa.array([rng.choice(TIMES)], kind.value_type),
        )
    if pa.types.is_struct(kind):
        inner = [_array(rng, each.type, count) for each in kind]
        return pa.StructArray.from_arrays(inner, fields=list(kind), mask=pa.array(nulls, pa.bool_()))
    if kind in (
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
    ):
        texts = [None if null else rng.choice((*STRINGS, *TIMES, "http://a.example/")) for null in nulls]
        values = pa.array([None if each is None else each.encode("utf-8", "surrogatepass") for each in texts])
        of_bytes = pa.array(values, pa.binary())
        return of_bytes.view(pa.string()).cast(kind) if "string" in str(kind) else of_bytes.cast(kind)
    if (
        pa.types.is_nested(kind)
        or pa.types.is_null(kind)
        or pa.types.is_boolean(kind)
        or kind == pa.binary(3)
    ):
        return pa.nulls(count, kind)
    if pa.types.is_decimal(kind) or pa.types.is_floating(kind):
        numbers = [None if null else rng.choice((1.5, -2.0, 1024.0)) for null in nulls]
        return pa.array(numbers, pa.float64()).cast(kind)
    width = 41 if kind == pa.timestamp("s") else kind.bit_width
    whole = pa.array(
        [None if null else rng.choice(NUMBERS) % (1 << width - 1) for null in nulls],
        {8: pa.int8(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width],
    )
    return whole.view(kind)

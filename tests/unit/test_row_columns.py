"""The columns of rows are declared once; fields and tables that repeat their names agree with that."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from stream.errors import RecordError
from stream.fingerprint.row import Row, Status
from stream.fingerprint.scheme import Scheme
from stream.judge.batch import Batch
from stream.messages.journal import Rows, SourceRange, StringColumns, decode_journal
from stream.messages.row_columns import (
    COLUMNS,
    MAP,
    MAPS,
    NO_TIME,
    NUMBERS,
    STRINGS,
    Column,
)
from stream.pages.times import LATEST
from stream.rows.arrow import TYPES, Place, batch_of, rows_of
from stream.text.url import MAX_URL

ROOT = Path(__file__).parents[2]
DTYPES = {each.name: dtype for each, dtype in NUMBERS}


def record() -> bytes:
    row = Row(Status.READY, "https://a.example/", 5, b"d" * 16, 7, sketch=bytes(Scheme().sketch_bytes))
    ranges = [SourceRange("c", "pages", "0" * 32, 0, 0, 2, 2)]
    return Rows.of(Scheme(), ranges, [row, row], [0, 1], [None, b"key"]).encode()


def test_rows_have_the_declared_columns() -> None:
    fields = {each.name for each in dataclasses.fields(Rows)} - {"scheme", "ranges", "strings", "corpus"}
    assert fields == {*DTYPES, *(each.name for each in MAPS)}
    assert StringColumns._fields == tuple(each.name for each in STRINGS)


def test_a_batch_has_the_columns_declared_as_judged() -> None:
    fields = {each.name for each in dataclasses.fields(Batch)} - {"place", "page", "time", "source", "ranges"}
    assert fields == {each.name for each in COLUMNS if each.judged}


@pytest.mark.parametrize("column", [each for each in COLUMNS if each.journal], ids=lambda each: each.name)
def test_the_layout_of_a_record_is_documented_as_declared(column: Column) -> None:
    text = (ROOT / "schemas" / "journal.md").read_text("utf-8")
    (kind,) = re.findall(
        rf"^\| `{column.name}` \| ((?:empty, or )?(?:bin, n|map)[^|]*?) \|", text, re.MULTILINE
    )
    absent = ", may be absent" if column.omitted == "column" else ""
    if column.journal == MAP:
        assert kind == "map of int to str" + absent
        return
    dtype = DTYPES.get(column.name, np.dtype("<i4"))
    number = f"{dtype.itemsize} bytes" if dtype.kind == "S" else f"{dtype.kind}{8 * dtype.itemsize}"
    width = "w x " if column.widths == () else f"{max(column.widths)} x " if max(column.widths) > 2 else ""
    empty = "empty, or " if 0 in column.widths or column.omitted == "numbers" else ""
    assert kind == f"{empty}bin, n x {width}{number}{absent}".replace("16 x u8", "16 bytes")


@pytest.mark.parametrize("name", DTYPES)
def test_a_column_that_does_not_fit_the_rows_is_refused(name: str) -> None:
    plain = msgspec.msgpack.decode(record())
    plain[name] = plain.get(name, b"") + bytes(DTYPES[name].itemsize)
    wrong = "row counts of the ranges" if name == "status" else f"{name} has [0-9]+ bytes, .* 2 rows"
    with pytest.raises(RecordError, match=wrong):
        decode_journal(msgspec.msgpack.encode(plain), 2)


@pytest.mark.parametrize("missing", [each.name for each in COLUMNS if each.journal])
def test_a_record_lacks_only_columns_that_it_may_omit(missing: str) -> None:
    plain = msgspec.msgpack.decode(record())
    plain.pop(missing, None)
    omitted = {each.name for each in COLUMNS if each.omitted == "column"}
    if missing in omitted:
        assert isinstance(decode_journal(msgspec.msgpack.encode(plain), 2), Rows)
    else:
        with pytest.raises(RecordError, match=f"missing required field `{missing}`"):
            decode_journal(msgspec.msgpack.encode(plain), 2)


def test_fields_of_a_row_are_columns_or_words_of_its_fingerprint() -> None:
    assert {*Row.__struct_fields__} - {each.name for each in COLUMNS} == {"low", "high"}


def test_columns_in_arrow_are_documented_as_declared() -> None:
    text = (ROOT / "docs" / "how-to" / "bring-a-corpus.md").read_text("utf-8")
    table = text.split("## The columns\n\n")[1].split("\n\n")[0]
    documented: dict[str, str] = {}
    for names, kinds in re.findall(r"^\| (`.+?) \| (\w+(?:, \w+)*) \|", table, re.MULTILINE):
        columns = re.findall(r"`(\w+)`", names)
        kinds = kinds.split(", ")
        documented |= zip(columns, kinds if len(kinds) > 1 else kinds * len(columns), strict=True)
    assert list(documented.items()) == [(each.name, each.arrow) for each in COLUMNS if each.arrow]


@pytest.mark.parametrize(
    ("name", "wrong", "said"),
    [
        ("length", -1, "length -1"),
        ("length", 2**32, "length 4294967296"),
        ("fetched_at", LATEST + 1, "fetched_at"),
        ("fetched_at", NO_TIME, "fetched_at"),
        ("status", 4, "status 4"),
        ("status", -1, "status -1"),
        ("url", "u" * (MAX_URL + 1), "a string longer than a page can have"),
        ("url_digest", None, "no URL"),
        ("url_digest", bytes(16), "no URL"),
        ("url_digest", b"d" * 15, "url_digest of 15 bytes"),
        ("text_hash", bytes(15) + b"x" * 2, "text_hash of 17 bytes"),
        ("language", "zh-TW", "language 'zh-TW'"),
    ],
)
def test_values_beyond_the_declared_bounds_are_refused_in_arrow(name: str, wrong: Any, said: str) -> None:
    row = Row(Status.READY, "https://a.example/", 5, b"d" * 16, 7, sketch=bytes(Scheme().sketch_bytes))
    batch = batch_of(Scheme(), [row], [Place(0, "a", 1)], [None])
    columns = {each: [wrong] if each == name else batch.column(each).to_pylist() for each in TYPES}
    with pytest.raises(ValueError, match=f".*{said}"):
        rows_of(
            pa.record_batch([pa.array(columns[each], kind) for each, kind in TYPES.items()], list(TYPES)),
            Scheme(),
        )

"""Parquet files as suites of the format have them: row groups, column names, odd values, and damage."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from stream.errors import PageError
from stream.pages.page import decode_page
from stream.sources.open import open_source

FAR = pa.array([2**62], pa.int64())
ODD = {
    "a date after the year 9999": pa.array([2**31 - 1], pa.int32()).view(pa.date32()),
    "nanoseconds": pa.array([1], pa.int64()).view(pa.timestamp("ns")),
    "a time after the year 9999": FAR.view(pa.timestamp("us")),
    "an unknown time zone": pa.array([0], pa.int64()).view(pa.timestamp("ms", "Mars/Olympus_Mons")),
    "a duration beyond what Python has": FAR.view(pa.duration("ms")),
    "a time of day": pa.array([1], pa.int64()).view(pa.time64("ns")),
    "no UTF-8": pa.array([b"caf\xe9"]).view(pa.string()),
    "a decimal": pa.array([1]).cast(pa.decimal256(50, 2)),
    "a list": pa.array([[["a"], None]]),
    "a map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())),
    "a struct": pa.array([{"url": "a", "b": {"c": 1}}]),
    "fixed bytes": pa.array([b"abc"], pa.binary(3)),
    "half a float": pa.array([1.5], pa.float32()).cast(pa.float16()),
    "nothing": pa.nulls(1),
    "a dictionary": pa.array(["a"]).dictionary_encode(),
    "a view": pa.array(["a"]).cast(pa.string_view()),
}


def written(path: Path, table: pa.Table, **options: Any) -> str:
    parquet.write_table(table, path / "a.parquet", **options)
    return str(path / "a.parquet")


def texts(source: str) -> list[str | None]:
    return [decode_page(each.value, 1 << 20).text for each in open_source(source)]


@pytest.mark.parametrize("name", ["x", "quality", "url.x", "Text.url", "\ufeff", ""])
@pytest.mark.parametrize("kind", ODD)
def test_a_column_beside_those_of_pages_costs_nothing(tmp_path: Path, kind: str, name: str) -> None:
    table = pa.table([["http://a/"], ["t"], ODD[kind]], ["url", "text", name])
    assert texts(written(tmp_path, table)) == ["t"]


@pytest.mark.parametrize(("group", "groups"), [(1, 5), (2, 3), (99, 1)])
def test_row_groups_of_any_size_are_read(tmp_path: Path, group: int, groups: int) -> None:
    table = pa.table({"url": ["http://a/"] * 5, "text": list("abcde")})
    path = tmp_path / "a.parquet"
    with parquet.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table.slice(0, 0))
        writer.write_table(table, row_group_size=group)
        writer.write_table(table.slice(0, 0))
    assert parquet.ParquetFile(path).num_row_groups >= groups
    assert texts(str(path)) == list("abcde")


def test_a_file_without_rows_has_no_page(tmp_path: Path) -> None:
    assert texts(written(tmp_path, pa.table({"url": pa.nulls(0), "text": pa.nulls(0)}))) == []


def test_every_cut_and_every_bad_footer_is_damage(tmp_path: Path) -> None:
    sink = io.BytesIO()
    parquet.write_table(pa.table({"url": ["http://a/"] * 3, "text": list("abc")}), sink, row_group_size=1)
    whole = sink.getvalue()
    footer = whole[:-8] + (2**31 - 1).to_bytes(4, "little") + b"PAR1"
    damaged = [whole[:end] for end in range(4, len(whole), 37)]
    damaged += [
        footer,
        whole[:-4] + b"PARE",
        whole[:4] + whole[-8:],
        whole[:-8] + bytes(4) + b"PAR1",
        b"PAR1" * 3,
    ]
    for data in damaged:
        (tmp_path / "a.parquet").write_bytes(data)
        source = open_source(str(tmp_path / "a.parquet"))
        with pytest.raises(PageError, match=r"damaged_source: .*a\.parquet after row 0"):
            list(source)

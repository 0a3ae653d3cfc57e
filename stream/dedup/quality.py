"""The numbers in a column that says how good pages are."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyarrow import parquet

from stream.dedup.copies import CsvRows
from stream.errors import PageError, SettingsError
from stream.objects import path_of
from stream.sources.compressed import DAMAGED, decompressed, open_counting
from stream.sources.jsonl import JsonlSource
from stream.sources.source import Source
from stream.sources.table import CsvSource, ParquetSource
from stream.suggest import meant

ROWS: Final = 1024
LOOKED_AT: Final = 1000
"""Pages that are looked at before others are judged for hours."""


def refuse_missing(source: Source, column: str) -> None:
    """Raise SettingsError for a source without such a column, or with no number in it in the first pages."""
    try:
        values = list(islice(_values(source, column), LOOKED_AT))
    except (PageError, pa.ArrowException, *DAMAGED):  # reading the pages names the damage
        return
    if values and not any(_number(value) is not None for value in values):
        where = f"the first {LOOKED_AT:,} pages of {source.name}"
        raise SettingsError(f"quality-column: no number in {column!r} in {where}")


def quality_of(source: Source, column: str, count: int) -> Iterator[float | None]:
    """Yield the number in a column for each of the first `count` pages of a source; None where there is none.

    `a.b` is the field `b` of `a`.
    """
    values = _values(source, column)
    for _ in range(count):
        yield _number(next(values, None))


def _values(source: Source, column: str) -> Iterator[Any]:
    if isinstance(source, ParquetSource):
        return _of_parquet(source, column)
    if isinstance(source, CsvSource):
        return _of_csv(source, column)
    if isinstance(source, JsonlSource):
        return _of_lines(source, column)
    raise SettingsError(f"quality-column: {source.name} has no columns")


def _of_parquet(source: ParquetSource, column: str) -> Iterator[Any]:
    with path_of(source.name).open("rb") as raw, parquet.ParquetFile(raw) as file:
        names = file.schema_arrow.names
        root, *path = [column] if column in names else column.split(".")
        if root not in names:
            raise _no_column(source, column, names)
        for group in range(file.num_row_groups):
            for batch in file.iter_batches(ROWS, row_groups=[group], columns=[column]):
                yield from (_value_at(value, path) for value in batch.column(0).to_pylist())


def _of_csv(source: CsvSource, column: str) -> Iterator[Any]:
    with open_counting(source.name) as raw:
        rows = CsvRows(source, decompressed(raw))
        if column not in rows.names:
            raise _no_column(source, column, rows.names)
        place = rows.names.index(column)
        for cells, _ in rows:
            yield cells[place] if place < len(cells) else None


def _of_lines(source: JsonlSource, column: str) -> Iterator[Any]:
    for line, _ in source.lines():
        try:
            fields = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            yield None
            continue
        named = isinstance(fields, dict) and column in fields
        yield _value_at(fields, [column] if named else column.split("."))


def _value_at(value: Any, path: list[str]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _number(value: Any) -> float | None:
    """Return a number that has an order among others."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if number != number else number


def _no_column(source: Source, column: str, names: list[str]) -> SettingsError:
    listed = ", ".join(names[:40]) or "none"
    return SettingsError(
        f"quality-column: {source.name} has no column {column!r}{meant(column, names) or ';'} it has {listed}"
    )

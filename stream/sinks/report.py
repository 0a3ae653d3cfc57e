"""Files of rows that commands write beside their output: JSON Lines, or CSV or Parquet if the name says so,
compressed as it says, in a bucket, too."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import pyarrow as pa
from pyarrow import parquet

from stream.errors import OutputError, SettingsError
from stream.output import writing
from stream.pages.compressing import compressing, compression_by_name
from stream.rows.files import ArrowFile
from stream.scratch import ScratchDirectory
from stream.sinks.csv_text import text_of
from stream.stores.objects import AnyPath

CHUNK: Final = 16_384
_OTHERS: Final = (".tsv", ".xlsx", ".xls", ".zip", ".db", ".duckdb", ".sqlite", ".arrow", ".feather", ".pq")
"""Suffixes of formats that are not written: who names one would take JSON Lines for a damaged file."""


def refuse_other_report(option: str, path: AnyPath) -> None:
    """Raise SettingsError for a file whose name tells another format than a report has."""
    suffix, compression = format_of(path), compression_by_name(path)
    if suffix in _OTHERS or (suffix == ".parquet" and compression):
        suffixes = "".join(Path(path.name).suffixes[-2 if compression else -1 :])
        raise SettingsError(
            f"{option} {path}: is not written as {suffixes}; name a file NAME.jsonl, NAME.csv or NAME.parquet"
        )


def format_of(path: AnyPath) -> str:
    """The suffix that tells the format of a report: that before the one of a compression."""
    name = Path(path.name)
    return (name.with_suffix("") if compression_by_name(name) else name).suffix.lower()


@contextmanager
def writing_report(path: AnyPath) -> Iterator[BinaryIO]:
    """Open a report for atomic writing, compressed if its name says so. Raises OutputError."""
    compression = compression_by_name(path)
    if isinstance(path, Path):
        with writing(path) as output, compressing(compression, cast(BinaryIO, output)) as file:
            yield file
        return
    with ScratchDirectory("report") as temporary:
        local = Path(temporary) / "report"
        with writing(local) as output, compressing(compression, cast(BinaryIO, output)) as file:
            yield file
        try:
            path.write_file(local)
        except OSError as error:
            raise OutputError(f"{path}: {error.strerror}") from error


def write_rows(file: BinaryIO, suffix: str, rows: Iterable[dict[str, Any]], schema: pa.Schema) -> None:
    """Write rows with the columns of a schema, whose maps are dicts in the rows."""
    if suffix == ".parquet":
        sink = pa.PythonFile(ArrowFile(file), mode="w")
        with parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
            coming = iter(rows)
            while some := list(islice(coming, CHUNK)):
                writer.write_table(pa.Table.from_pylist(some, schema))
    elif suffix == ".csv":
        file.write(text_of([schema.names]).encode())
        for each in rows:
            file.write(text_of([[cell_of(each[name]) for name in schema.names]]).encode())
    else:
        for each in rows:
            file.write(json.dumps(each, ensure_ascii=False).encode() + b"\n")


def cell_of(value: Any) -> Any:
    """What CSV has for a value: JSON for a map."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value

"""CSV and Parquet tables with a page per row. The columns are the fields of a page message."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from stream.errors import PageError, SettingsError
from stream.messages.verdict import rfc3339
from stream.sources.compressed import DAMAGED, decompressed
from stream.sources.file import FileSource
from stream.sources.source import MAX_MESSAGE, Message, Source

FIELDS: Final = (
    *("url", "html", "text", "body", "content_type", "charset", "fetched_at"),
    *("redirected_from", "canonical_url"),
)
"""Columns that are read; others are ignored."""
CONTENT: Final = ("html", "text", "body")
ROWS: Final = 64
"""Rows of a Parquet file decoded at a time."""


class CsvSource(FileSource):
    """A CSV file in UTF-8, tab-separated if it is named .tsv, whose first line names the columns.

    An empty cell is a missing field. `body` is base64, as in a page message.
    """

    def __iter__(self) -> Iterator[Message]:
        csv.field_size_limit(MAX_MESSAGE)
        line = 0
        with self._opened() as raw:
            try:
                text = io.TextIOWrapper(decompressed(raw), "utf-8-sig", "replace", newline="")
                rows = csv.reader(text, delimiter="\t" if ".tsv" in Path(self.name).name.lower() else ",")
                columns = [name.strip().lower() for name in next(rows, [])]
                _refuse_other_columns(self.name, columns)
                for cells in rows:
                    line = rows.line_num
                    found = {name: cell for name, cell in zip(columns, cells, strict=False) if cell}
                    if found:
                        yield _message(found, f"{self.name} line {line}")
            except (csv.Error, *DAMAGED) as error:
                raise PageError("damaged_source", f"{self.name} after line {line}: {error}") from error


class ParquetSource(Source):
    """A Parquet file. A binary `html`, `text` or `body` holds the page's raw bytes; a string `body` is
    base64.

    Needs the extra `export` (pyarrow). Iterating raises SettingsError without it.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._share = 0.0

    @property
    def total_bytes(self) -> int | None:
        return Path(self.name).stat().st_size

    @property
    def bytes_read(self) -> int:
        return int(self._share * Path(self.name).stat().st_size)

    def __iter__(self) -> Iterator[Message]:
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError as error:
            raise SettingsError(
                f"source {self.name}: pip install 'neardup-stream[export]' ({error})"
            ) from error
        number, self._share = 0, 0.0
        try:
            with parquet.ParquetFile(self.name) as file:
                columns = {name.lower(): name for name in file.schema_arrow.names}
                _refuse_other_columns(self.name, columns)
                wanted = [columns[name] for name in FIELDS if name in columns]
                for batch in file.iter_batches(ROWS, columns=wanted):
                    for row in batch.to_pylist():
                        number += 1
                        found = {name.lower(): value for name, value in row.items() if value is not None}
                        yield _message(found, f"{self.name} row {number}")
                    self._share = number / file.metadata.num_rows
        except (pyarrow.ArrowException, OSError) as error:
            raise PageError("damaged_source", f"{self.name} after row {number}: {error}") from error


def _refuse_other_columns(name: str, columns: Iterable[str]) -> None:
    """Raise SettingsError for a table without the columns of pages: that is a mistake of the user, rather
    than many pages to reject."""
    columns = list(columns)
    if "url" in columns and any(content in columns for content in CONTENT):
        return
    raise SettingsError(
        f"source {name}: no columns `url` and one of {', '.join(f'`{each}`' for each in CONTENT)};"
        f" it has {', '.join(columns) or 'none'}"
    )


def _message(row: dict[str, Any], origin: str) -> Message:
    fields = {name: _field(row[name]) for name in FIELDS if name in row}
    for name in ("html", "text"):
        if isinstance(row.get(name), bytes):
            fields["body"] = fields.pop(name)
            fields.setdefault("content_type", "text/html" if name == "html" else "text/plain")
    url = fields.get("url")
    return Message(msgspec.json.encode(fields), url if isinstance(url, str) else None, origin)


def _field(value: Any) -> Any:
    """A cell as a JSON value. A value of any other type becomes a string; page messages validate it."""
    match value:
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case datetime():
            moment = value if value.tzinfo else value.replace(tzinfo=UTC)
            return rfc3339(int(moment.timestamp() * 1000))
        case date():
            return f"{value.isoformat()}T00:00:00Z"
        case str() | int() | float():
            return value
        case _:
            return str(value)

"""CSV and Parquet tables with a page per row. The columns are the fields of a page message,
or named by `Columns`."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from stream.errors import PageError, attributed_to
from stream.pages.column_names import fits
from stream.pages.columns import NO_COLUMNS, Columns, url_of_id
from stream.pages.fields import message_fields, quality_field
from stream.pages.members import DAMAGED
from stream.pages.page import CONTENT
from stream.sources.compressed import decompressed
from stream.sources.csv_rows import CsvRows
from stream.sources.encode import encode_fields
from stream.sources.encoding import decoded
from stream.sources.file import FileSource
from stream.sources.source import Message
from stream.stores.objects import path_of

ROWS: Final = 64
"""Rows of a Parquet file decoded at a time."""
_NULL: Final = r"\N"
"""The cell that databases write for what is missing."""


class CsvSource(FileSource):
    """A CSV file in UTF-8 or UTF-16, of any dialect that `CsvRows` reads, whose first row names the columns.

    An empty cell is a missing field, or an empty content if there is no other. `body` is base64, as in a page
    message.
    """

    def __init__(self, path: str, columns: Columns = NO_COLUMNS) -> None:
        super().__init__(path)
        self.columns = columns

    def _read(self) -> Iterator[Message]:
        line = 0
        with self._opened() as raw:
            try:
                rows = CsvRows(decoded(decompressed(raw), self.name), self.name)
                if not rows.names:
                    return
                with attributed_to(f"source {self.name}"):
                    places = self.columns.locate(rows.names, fits=partial(_fits, rows))
                columns = [(field, rows.names.index(path[0])) for field, path in places.items()]
                content = next(at for field, at in columns if field in CONTENT)
                for number, (line, cells, _) in enumerate(rows, 1):
                    yield self._message(number, line, columns, rows.joined(cells, content))
            except (csv.Error, *DAMAGED) as error:
                raise PageError("damaged_source", f"{self.name} after line {line}: {error}") from error

    def _message(self, number: int, line: int, columns: list[tuple[str, int]], cells: list[str]) -> Message:
        count = len(cells)
        fields: dict[str, Any] = {}
        for field, at in columns:
            cell = "" if at >= count or cells[at] == _NULL else cells[at]
            if cell or (field in CONTENT and at < count):
                fields[field] = cell
        if "quality" in fields:
            fields["quality"] = quality_field(_number(fields["quality"]))
        if "id" in fields:
            fields["url"] = url_of_id(fields.pop("id"), self.columns.id_prefix)
        if url := self.columns.url_of_place(self.name, number):
            fields["url"] = url
        return _message(message_fields(fields), self, f"line {line}")


def _fits(rows: CsvRows, field: str, name: str) -> bool:
    """Whether one of the first cells of a column may be that of a field."""
    at = rows.names.index(name)
    return any(fits(field, row.cells[at]) for row in rows.first if at < len(row.cells))


def _number(cell: str) -> float | str:
    """The number in a cell, or its text."""
    try:
        return float(cell)
    except ValueError:
        return cell


class ParquetSource(FileSource):
    """A Parquet file. A binary `html`, `text` or `body` holds the page's raw bytes; a string `body` is
    base64.

    Iterating raises SettingsError for a column whose type no field of a page can have.
    """

    def __init__(self, path: str, columns: Columns = NO_COLUMNS) -> None:
        super().__init__(path)
        self.columns = columns
        self._share = 0.0

    @property
    def bytes_read(self) -> int:
        return int(self._share * (self.total_bytes or 0))

    def _read(self) -> Iterator[Message]:
        from pyarrow import parquet

        from stream.pages.arrow import UNREADABLE, first_values, locate, message_rows

        number, self._share = 0, 0.0
        try:
            with path_of(self.name).open("rb") as raw, parquet.ParquetFile(raw) as file:
                with attributed_to(f"source {self.name}"):
                    places = locate(file.schema_arrow, self.columns, values=partial(first_values, file))
                wanted = [".".join(path) for path in places.values()]
                for group in range(file.num_row_groups):  # a batch of two would lose rows before damage
                    for batch in file.iter_batches(ROWS, row_groups=[group], columns=wanted):
                        for fields in message_rows(batch, places, self.columns.id_prefix):
                            number += 1
                            if url := self.columns.url_of_place(self.name, number):
                                fields["url"] = url
                            yield _message(fields, self, f"row {number}")
                        self._share = number / max(1, file.metadata.num_rows)
        except (*UNREADABLE, OSError) as error:
            raise PageError("damaged_source", f"{self.name} after row {number}: {error}") from error


def _message(fields: dict[str, Any], source: FileSource, place: str) -> Message:
    url = fields.get("url")
    hint = url if isinstance(url, str) else None
    return Message(encode_fields(fields), hint, source.name, place, columns=source.columns)

"""CSV and Parquet tables with a page per row. The columns are the fields of a page message."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from stream.errors import PageError, SettingsError
from stream.extras import needs_export
from stream.objects import path_of
from stream.pages.fields import FIELDS, message_fields, missing_columns
from stream.sources.compressed import DAMAGED, decompressed
from stream.sources.encode import encode_fields
from stream.sources.file import FileSource
from stream.sources.source import MAX_MESSAGE, Message

ROWS: Final = 64
"""Rows of a Parquet file decoded at a time."""


class CsvSource(FileSource):
    """A CSV file in UTF-8, tab-separated if it is named .tsv, whose first line names the columns.

    An empty cell is a missing field. `body` is base64, as in a page message.
    """

    def _read(self) -> Iterator[Message]:
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
                    fields = {name: cell for name, cell in zip(columns, cells, strict=False) if cell}
                    if fields:
                        yield _message(message_fields(fields), self.name, f"line {line}")
            except (csv.Error, *DAMAGED) as error:
                raise PageError("damaged_source", f"{self.name} after line {line}: {error}") from error


class ParquetSource(FileSource):
    """A Parquet file. A binary `html`, `text` or `body` holds the page's raw bytes; a string `body` is
    base64.

    Needs the extra `export` (pyarrow). Iterating raises SettingsError without it, and for a column whose type
    no field of a page can have.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._share = 0.0

    @property
    def bytes_read(self) -> int:
        return int(self._share * (self.total_bytes or 0))

    def _read(self) -> Iterator[Message]:
        with needs_export(f"source {self.name}"):
            import pyarrow
            from pyarrow import parquet

            from stream.pages.arrow import message_rows, unfit_column
        number, self._share = 0, 0.0
        try:
            with path_of(self.name).open("rb") as raw, parquet.ParquetFile(raw) as file:
                columns = {name.lower(): name for name in file.schema_arrow.names}
                _refuse_other_columns(self.name, columns)
                wanted = [columns[name] for name in FIELDS if name in columns]
                if unfit := unfit_column(field for field in file.schema_arrow if field.name in wanted):
                    raise SettingsError(f"source {self.name}: {unfit}")
                for group in range(file.num_row_groups):  # a batch of two would lose rows before damage
                    for batch in file.iter_batches(ROWS, row_groups=[group], columns=wanted):
                        for fields in message_rows(batch):
                            number += 1
                            yield _message(fields, self.name, f"row {number}")
                        self._share = number / file.metadata.num_rows
        except (pyarrow.ArrowException, OSError) as error:
            raise PageError("damaged_source", f"{self.name} after row {number}: {error}") from error


def _refuse_other_columns(name: str, columns: Iterable[str]) -> None:
    """Raise SettingsError for a table without the columns of pages: that is a mistake of the user, rather
    than many pages to reject."""
    if missing := missing_columns(columns):
        raise SettingsError(f"source {name}: {missing}")


def _message(fields: dict[str, Any], file: str, place: str) -> Message:
    url = fields.get("url")
    return Message(encode_fields(fields), url if isinstance(url, str) else None, file, place)

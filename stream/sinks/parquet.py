"""Exports verdicts to a directory of Parquet files, with the position of the export in their metadata."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from stream.locks import try_lock
from stream.messages.verdict import VerdictRecord
from stream.sinks.base import COLUMNS, ExportError, Sink, values_of

SUFFIX: Final = ".parquet"
ROWS: Final = 1_000_000
"""Approximate number of rows per file."""
OFFSETS: Final = b"neardup.offsets"
"""Metadata key of the export's position: JSON of topic id -> partition -> next offset to export."""
_TYPES: Final = {
    "VARCHAR": "string",
    "INTEGER": "int32",
    "BIGINT": "int64",
    "DOUBLE": "float64",
}
_Offsets = dict[str, dict[int, int]]


class ParquetSink(Sink):
    """Writes verdicts to files `verdicts-000001.parquet` and so on, each complete once it appears and
    immutable.

    Appended rows become durable when their file is full, by `flush`, or at `close`.
    """

    def __init__(self, directory: Path) -> None:
        """Create the directory. Raises ExportError if another process exports to it."""
        import pyarrow
        import pyarrow.parquet

        self._arrow, self._parquet, self._directory = pyarrow, pyarrow.parquet, directory
        self._writer: Any = None
        self._rows = 0
        self._schema = pyarrow.schema([self._column(*each) for each in COLUMNS.items()])
        with self._translated_errors():
            directory.mkdir(exist_ok=True)
            self._held = os.open(directory, os.O_RDONLY)
            try:
                self._lock()
                self._number, self._offsets = self._last_part()
                for left in directory.glob(".verdicts-*.part"):
                    left.unlink()
            except BaseException:
                os.close(self._held)
                raise

    def offsets(self, topic_id: str) -> dict[int, int]:
        return dict(self._offsets.get(topic_id, {}))

    def topics(self) -> set[str]:
        return set(self._offsets)

    def append(self, rows: Sequence[VerdictRecord], topic_id: str, offsets: Mapping[int, int]) -> None:
        with self._translated_errors():
            try:
                if rows:
                    columns = map(list, zip(*map(values_of, rows), strict=True))
                    table = self._arrow.table(list(columns), schema=self._schema)
                    self._open().write_table(table)
                    self._rows += len(rows)
            except BaseException:
                self._writer = None  # its partial file is never renamed
                raise
            self._offsets.setdefault(topic_id, {}).update(offsets)
            if self._rows >= ROWS:
                self._finish()

    def flush(self) -> None:
        with self._translated_errors():
            self._finish()

    def close(self) -> None:
        try:
            with self._translated_errors():
                self._finish()
        finally:
            os.close(self._held)

    def _column(self, name: str, declared: str) -> Any:
        kind, *_ = declared.split()
        arrow = self._arrow.timestamp("ms", "UTC") if kind == "TIMESTAMPTZ" else _TYPES[kind]
        return self._arrow.field(name, arrow, nullable="NOT NULL" not in declared)

    def _lock(self) -> None:
        if not try_lock(self._held):
            raise ValueError("another process is exporting to it")

    def _last_part(self) -> tuple[int, _Offsets]:
        """Return the number of the last file and the position it stores."""
        number, last = max(
            (
                (int(file.stem.partition("-")[2]), file)
                for file in self._directory.glob(f"verdicts-*{SUFFIX}")
            ),
            default=(0, None),
        )
        if last is None:
            return 0, {}
        stored = (self._parquet.read_metadata(last.absolute()).metadata or {}).get(OFFSETS)
        if stored is None:
            raise ValueError(f"{last.name} was not written by an export")
        return number, msgspec.json.decode(stored, type=_Offsets)

    def _name(self) -> str:
        return f"verdicts-{self._number + 1:06}{SUFFIX}"

    def _part(self) -> Path:
        return self._directory / f".{self._name()}.part"

    def _open(self) -> Any:
        if self._writer is None:
            self._rows = 0
            self._writer = self._parquet.ParquetWriter(
                self._part().absolute(), self._schema, compression="zstd"
            )
        return self._writer

    def _finish(self) -> None:
        """Complete the current file: write the position, sync and rename."""
        if self._writer is None:
            return
        writer, self._writer = self._writer, None
        writer.add_key_value_metadata({OFFSETS: msgspec.json.encode(self._offsets)})
        writer.close()
        with self._part().open("rb") as written:
            os.fsync(written.fileno())
        os.replace(self._part(), self._directory / self._name())
        os.fsync(self._held)
        self._number += 1

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, self._arrow.ArrowException) as error:
            raise ExportError(f"target {self._directory}: {error}") from error

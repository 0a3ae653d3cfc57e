"""Rows: a directory of fingerprinted pages, as `neardup fingerprint --output` and engines write it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from stream.errors import SettingsError
from stream.fingerprint.row import Row
from stream.fingerprint.scheme import Scheme
from stream.sources.source import Message, Source

if TYPE_CHECKING:
    from stream.rows.files import RowsReader

MARKS = ("_neardup_rows.json", "_neardup_plan.json")
"""Files by which a directory of rows is told from one of saved pages: of a complete and an unfinished run."""


class RowsSource(Source):
    """Pages that are fingerprinted already, in the order of their places. It has no messages, only rows.

    Needs the extra `export` (pyarrow). Raises SettingsError without it, and RowsError for rows that are
    damaged or incomplete.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        try:
            from stream.rows.files import RowsReader
        except ImportError as error:
            raise SettingsError(f"source {path}: pip install 'neardup-stream[export]' ({error})") from error
        self._reader: RowsReader = RowsReader(Path(path))

    @property
    def digest(self) -> str:
        """32 hex digits that identify the rows."""
        return self._reader.manifest.digest

    @property
    def count(self) -> int:
        """Number of rows."""
        return self._reader.manifest.rows

    @property
    def uncertain(self) -> bool:
        """Whether they have the bits that the verdict option `flips` needs."""
        return self._reader.manifest.uncertain

    @property
    def total_bytes(self) -> int | None:
        return sum(each.bytes for each in self._reader.manifest.files)

    @property
    def bytes_read(self) -> int:
        return self._reader.bytes_read

    def rows(self, scheme: Scheme, start: int = 0) -> Iterator[Row]:
        """Yield the rows from number `start` on. Raises RowsError, and SchemeMismatchError for rows of
        another scheme or seed."""
        return (each.row for each in self._reader.read(scheme, start))

    def __iter__(self) -> Iterator[Message]:
        raise SettingsError(
            f"source {self.name}: rows have fingerprints and no pages; only `neardup scan` reads them"
        )


def is_rows(path: Path) -> bool:
    """Whether a directory holds rows."""
    return any((path / mark).exists() for mark in MARKS)

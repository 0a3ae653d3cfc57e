"""Rows: a directory of fingerprinted pages, as `neardup fingerprint --output` and engines write it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stream.errors import SettingsError
from stream.fingerprint.scheme import Scheme
from stream.sources.source import Message, Source
from stream.stores.objects import AnyPath, path_of

if TYPE_CHECKING:
    from stream.rows.arrow import PlacedRow
    from stream.rows.files import RowsReader

MARKS = ("_neardup_rows.json", "_neardup_plan.json")
"""Files by which a directory of rows is told from one of saved pages: of a complete and an unfinished run."""


class RowsSource(Source):
    """Pages that are fingerprinted already, in the order of their places. It has no messages, only rows.

    Raises RowsError for rows that are damaged or incomplete.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        from stream.rows.files import RowsReader

        self._reader: RowsReader = RowsReader(path_of(path))

    @property
    def digest(self) -> str:
        """32 hex digits that identify the rows."""
        return self._reader.manifest.digest

    @property
    def count(self) -> int:
        """Number of rows."""
        return self._reader.manifest.rows

    def refuse_misfits(self, scheme: Scheme) -> None:
        """Raise SchemeMismatchError for rows of another scheme or seed."""
        self._reader.manifest.refuse_other_scheme(self.name, scheme)

    @property
    def total_bytes(self) -> int | None:
        return sum(each.bytes for each in self._reader.manifest.files)

    @property
    def bytes_read(self) -> int:
        return self._reader.bytes_read

    def placed(self, scheme: Scheme, start: int = 0) -> Iterator[PlacedRow]:
        """Yield the rows from number `start` on, with their places and message keys. Raises RowsError, and
        SchemeMismatchError for rows of another scheme or seed."""
        for placed in self._reader.read(scheme, start):
            if self.repeated_ids is not None:
                place = placed.place
                self.repeated_ids.add(placed.row.url, place.source, f"page {place.position + 1}")
            yield placed

    def _read(self) -> Iterator[Message]:
        raise SettingsError(
            f"source {self.name}: rows have fingerprints and no pages; only `neardup scan` and"
            " `neardup load` read them"
        )


def is_rows(path: AnyPath) -> bool:
    """Whether a directory holds rows."""
    return any((path / mark).exists() for mark in MARKS)

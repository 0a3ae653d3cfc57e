"""Parquet files of rows: written whole or not at all, read in order, and sealed with a manifest."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute, parquet

from stream.errors import RowsError
from stream.fingerprint.scheme import Scheme
from stream.rows.arrow import TYPES, Place, PlacedRow, foreign, refuse_nulls, rows_of, schema
from stream.rows.manifest import (
    SUFFIX,
    Manifest,
    RowsFile,
    digest_of,
    read_manifest,
    visible,
    writing_to,
)
from stream.stores.objects import AnyPath

GROUP_ROWS: Final = 8192
"""Rows of a row group: some 3 MB, which a merge holds of each open file."""
READ_ROWS: Final = 1024
MAX_OPEN: Final = 256
"""Most files that a merge reads at the same time."""
_ENCODINGS: Final = {
    "order": "DELTA_BINARY_PACKED",
    "position": "DELTA_BINARY_PACKED",
    "url": "DELTA_BYTE_ARRAY",
    "key": "DELTA_BYTE_ARRAY",
    "fingerprint": "DELTA_LENGTH_BYTE_ARRAY",
    "sketch": "DELTA_LENGTH_BYTE_ARRAY",
    "text_hash": "DELTA_LENGTH_BYTE_ARRAY",
    "url_digest": "DELTA_LENGTH_BYTE_ARRAY",
    "length": "DELTA_BINARY_PACKED",
    "fetched_at": "DELTA_BINARY_PACKED",
    "quality": "PLAIN",
}
"""Without these, lengths of byte strings, which are all the same, take 4 bytes each. Other columns repeat few
values and get a dictionary."""
_PLACE: Final = ("order", "source", "position")
_NOWHERE: Final = Place(0, "", 0)


def sorted_table(batches: Sequence[pa.RecordBatch], scheme: Scheme) -> pa.Table:
    """The rows of batches, by place."""
    table = pa.Table.from_batches(batches, schema(scheme))
    keys = [(name, "ascending") for name in _PLACE]
    return table.take(compute.sort_indices(table, keys))


def write_file(path: AnyPath, table: pa.Table) -> RowsFile:
    """Write a file of sorted rows, durable once this returns. Equal rows give equal bytes. Raises OutputError
    and RowsError."""
    with writing_to(path) as output:
        sink = pa.PythonFile(ArrowFile(output), mode="w")
        with parquet.ParquetWriter(
            sink,
            table.schema,
            compression="zstd",
            use_dictionary=[name for name in TYPES if name not in _ENCODINGS],
            column_encoding=_ENCODINGS,
            write_statistics=[*_PLACE, "scheme", "status", "fetched_at"],
        ) as writer:
            writer.write_table(table, row_group_size=GROUP_ROWS)
    return _described(path, table)


def read_described(path: AnyPath, scheme: Scheme) -> RowsFile:
    """The entry in the manifest of a file that was written before. Raises RowsError."""
    return _described(path, _table(path, scheme))


def last_read(path: AnyPath, sources: Sequence[str]) -> tuple[str, int]:
    """Source and position of the page of a file that comes last in the sources, wherever its row is."""
    with path.open("rb") as file:
        table = parquet.read_table(file, columns=["source", "position"])
    number = {name: place for place, name in enumerate(sources)}
    pages = zip(table.column("source").to_pylist(), table.column("position").to_pylist(), strict=True)
    return max(pages, key=lambda page: (number.get(page[0], -1), page[1]))


def _described(path: AnyPath, table: pa.Table) -> RowsFile:
    """The entry of a file in the manifest. Raises RowsError unless its rows are in order."""
    places = [table.column(name).to_pylist() for name in _PLACE]
    listed = [Place(*each) for each in zip(*places, strict=True)]
    for before, place in pairwise(listed):
        refuse_disorder(str(path), before, place)
    ends = (listed[0], listed[-1]) if listed else (_NOWHERE, _NOWHERE)
    return RowsFile(path.name, len(listed), path.stat().st_size, digest_of(path), *ends)


def refuse_disorder(where: str, before: Place, place: Place) -> None:
    """Raise RowsError unless `place` comes after `before`."""
    if place == before:
        raise RowsError(
            f"rows {where}: two pages have {_describe(place)}, so which is judged first is not known;"
            " give them an order, source or position of their own"
        )
    if place < before:
        raise RowsError(f"rows {where}: not sorted, {_describe(place)} comes after {_describe(before)}")


def _describe(place: Place) -> str:
    return f"order {place.order}, source {place.source!r}, position {place.position}"


def seal(directory: AnyPath, scheme: Scheme) -> Manifest:
    """Write the manifest of a directory of sorted files that an engine wrote.

    Raises RowsError, which names a file without rows of this scheme, or whose rows are not in order.
    """
    files = []
    try:
        paths = list(visible(directory))
    except OSError as error:
        raise RowsError(f"rows {directory}: {error.strerror}") from error
    for path in paths:
        if path.suffix != SUFFIX:
            raise RowsError(f"rows {path}: not a Parquet file")
        files.append(_described(path, _table(path, scheme)))
    manifest = Manifest.of(scheme, files)
    manifest.write(directory)
    return manifest


def _table(path: AnyPath, scheme: Scheme) -> pa.Table:
    """The columns of a file that tell what it is. Raises RowsError."""
    try:
        with path.open("rb") as raw, parquet.ParquetFile(raw) as file:
            if wrong := foreign(file.schema_arrow, scheme.id):
                raise RowsError(f"rows {path}: {wrong}")
            table = file.read([*_PLACE, "scheme"])
            table.validate(full=True)  # an engine may have written strings that are not UTF-8
            refuse_nulls(table)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RowsError(f"rows {path}: damaged: {error}") from error
    for other in compute.unique(table.column("scheme")).to_pylist():
        if other != scheme.id:
            raise RowsError(f"rows {path}: has scheme {other}, not {scheme.id}")
    return table


class RowsReader:
    """The rows of a directory, merged in the order of their places, in bounded memory."""

    def __init__(self, directory: AnyPath) -> None:
        """Raises RowsError."""
        self._directory = directory
        self.manifest = read_manifest(directory)
        self.bytes_read = 0
        """Bytes of files read so far, of those that the manifest lists."""

    def read(self, scheme: Scheme, start: int = 0) -> Iterator[PlacedRow]:
        """Yield the rows from number `start` on. Files that lie wholly before it in their order are not read.

        Raises RowsError, and SchemeMismatchError.
        """
        self.manifest.refuse_other_scheme(str(self._directory), scheme)
        files, first = self._from(start)
        before: Place | None = None
        for number, row in enumerate(self._merged(files, scheme), first):
            if before is not None:
                refuse_disorder(str(self._directory), before, row.place)
            before = row.place
            if number >= start:
                yield row

    def _from(self, start: int) -> tuple[list[RowsFile], int]:
        """The files that have rows from number `start` on, and the number of their first row."""
        files, first = [each for each in self.manifest.files if each.rows], 0
        while (
            files and first + files[0].rows <= start and (len(files) == 1 or files[0].last < files[1].first)
        ):
            passed = files.pop(0)
            first += passed.rows
            self.bytes_read += passed.bytes
        return files, first

    def _merged(self, files: Sequence[RowsFile], scheme: Scheme) -> Iterator[PlacedRow]:
        """The rows of files by place. A file is opened when its first row is due."""
        waiting = list(reversed(files))  # the first at the end
        opened: list[tuple[Place, int, PlacedRow, Iterator[PlacedRow]]] = []
        while waiting or opened:
            while waiting and (not opened or waiting[-1].first <= opened[0][0]):
                if len(opened) == MAX_OPEN:
                    raise RowsError(
                        f"rows {self._directory}: more than {MAX_OPEN} files overlap in their order at"
                        f" {_describe(opened[0][0])}; sort them first, or make fewer and larger files"
                    )
                rows = self._rows(waiting.pop(), scheme)
                if (head := next(rows, None)) is not None:
                    heapq.heappush(opened, (head.place, len(waiting), head, rows))
            _, tie, row, rows = opened[0]
            yield row
            if (head := next(rows, None)) is None:
                heapq.heappop(opened)
            else:
                heapq.heapreplace(opened, (head.place, tie, head, rows))

    def _rows(self, listed: RowsFile, scheme: Scheme) -> Iterator[PlacedRow]:
        path = self._directory / listed.name
        count, last = 0, listed.first
        try:
            if digest_of(path) != listed.digest:
                raise RowsError(f"rows {path}: damaged, its digest is not that of the manifest")
            with path.open("rb") as raw, parquet.ParquetFile(raw) as file:
                if wrong := foreign(file.schema_arrow, scheme.id):
                    raise RowsError(f"rows {path}: {wrong}")
                for batch in file.iter_batches(READ_ROWS, columns=list(TYPES)):
                    for row in rows_of(batch.select(list(TYPES)), scheme):
                        if count:
                            refuse_disorder(str(path), last, row.place)
                        count, last = count + 1, row.place
                        yield row
                    self.bytes_read += listed.bytes * batch.num_rows // max(1, listed.rows)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise RowsError(f"rows {path}: damaged after row {count}: {error}") from error
        if (count, last) != (listed.rows, listed.last):
            raise RowsError(
                f"rows {path}: has {count} rows up to {_describe(last)}, which the manifest denies"
            )


class ArrowFile:
    """`stream.output.Output` with the methods that pyarrow calls."""

    closed = False

    def __init__(self, output: Any) -> None:
        self._output = output

    def write(self, data: Any) -> int:
        written: int = self._output.write(data)
        return written

    def tell(self) -> int:
        size: int = self._output.bytes
        return size

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

"""Copies the pages of a source that are kept, in its own format and as they are."""

from __future__ import annotations

import codecs
import csv
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, cast

import msgspec
import pyarrow as pa
from pyarrow import parquet

from stream.dedup.archives import copy_archive
from stream.dedup.kept_pages import COUNTS, KeptPages
from stream.errors import OutputError, PageError, SettingsError
from stream.output import Output, writing
from stream.pages.columns import json_fields
from stream.pages.compressing import compressing, compression_by_name
from stream.pages.members import DAMAGED, Compression
from stream.rows.files import ArrowFile
from stream.sources import table
from stream.sources.compressed import decompressed, open_counting
from stream.sources.csv_rows import CsvRows
from stream.sources.directory import DirectorySource
from stream.sources.encoding import decoded
from stream.sources.jsonl import JsonlSource
from stream.sources.source import Source
from stream.sources.table import CsvSource, ParquetSource
from stream.sources.warc import WarcSource
from stream.stores.objects import path_of

ROWS: Final = 256
"""Rows of a Parquet file that are decoded at a time."""
GROUP_BYTES: Final = 64 << 20
"""Bytes of decoded rows after which a row group is written, even if the source's goes on."""
_COUNT_FIELDS: Final = [
    pa.field(name, kind)
    for name, kind in zip(COUNTS, (pa.int64(), pa.map_(pa.string(), pa.int64())), strict=True)
]
_CODECS: Final = {"UNCOMPRESSED": "NONE", "LZ4_RAW": "LZ4"}
"""Compressions of Parquet that pyarrow's writer has other names for."""


def copy(parts: Iterable[tuple[Source, KeptPages]], target: Path) -> None:
    """Write those pages of sources that are kept, of files of one format to a file. It appears whole or not
    at all, compressed if its suffix says so. A directory of saved pages is copied alone, and is for the
    caller to rename.

    Raises OutputError, and SettingsError if a source has fewer pages now.
    """
    with ExitStack() as stack:
        writer: _Writer | None = None
        for source, pages in parts:
            if isinstance(source, DirectorySource):
                with _reading_again(source):
                    _copy_saved(source, pages, target)
                continue
            if writer is None:
                output = stack.enter_context(writing(target))
                writer = stack.enter_context(_Writer(output, compression_by_name(target)))
            with _reading_again(source):
                writer.copy(source, pages)
                pages.end()


@contextmanager
def _reading_again(source: Source) -> Iterator[None]:
    try:
        yield
    except (PageError, pa.ArrowException, csv.Error, *DAMAGED) as error:
        raise SettingsError(f"source {source.name}: could not be read a second time: {error}") from error


class Header(NamedTuple):
    """The columns of a file."""

    names: Sequence[str]
    written: str
    """What files must have alike to be written to one."""


def header_of(source: Source) -> Header | None:
    """The columns of a file; None if it has none, or cannot be read."""
    try:
        if isinstance(source, ParquetSource):
            with path_of(source.name).open("rb") as raw, parquet.ParquetFile(raw) as opened:
                fields = list(opened.schema_arrow)
                written = "".join(f"{each.name}: {each.type}, {each.nullable}\n" for each in fields)
                return Header([each.name for each in fields], written)
        if isinstance(source, CsvSource):
            with open_counting(source.name) as file:
                rows = CsvRows(decoded(decompressed(file), source.name), source.name)
                return Header(rows.names, rows.header.rstrip("\r\n"))
    except (PageError, pa.ArrowException, csv.Error, *DAMAGED):
        pass
    return None


def refuse_counts(sources: Sequence[Source]) -> None:
    """Raise SettingsError for a source whose pages have no place for the counts of clusters, or have them."""
    for source in sources:
        if not isinstance(source, JsonlSource | CsvSource | ParquetSource):
            raise SettingsError(
                f"cluster-counts: pages of {source.name} have no columns; --dropped and"
                " `neardup query --clusters` have the counts"
            )
        if (header := header_of(source)) and not set(COUNTS).isdisjoint(header.names):
            raise _has_counts(source)


class _Writer(ExitStack):
    """A file that is written from one source or several of one format."""

    def __init__(self, output: Output, compression: Compression | None) -> None:
        super().__init__()
        self._output, self._compression = output, compression
        self._parquet: parquet.ParquetWriter | None = None
        self._text: BinaryIO | None = None

    def copy(self, source: Source, pages: KeptPages) -> None:
        """Write the pages of a source that are kept."""
        if isinstance(source, ParquetSource):
            self._copy_parquet(source, pages)
        elif isinstance(source, WarcSource):
            copy_archive(source, pages, self._output, self._compression)
        else:
            is_first = self._text is None
            if self._text is None:
                self._text = self.enter_context(compressing(self._compression, cast(BinaryIO, self._output)))
            if isinstance(source, CsvSource):
                _copy_csv(source, pages, self._text, with_header=is_first)
            elif isinstance(source, JsonlSource):
                _copy_lines(source, pages, self._text)
            else:
                raise TypeError(source)

    def _copy_parquet(self, source: ParquetSource, pages: KeptPages) -> None:
        """Copy rows with all columns, their types, and the metadata of the first file."""
        batch_rows = table.ROWS if source.damage_count else ROWS  # the same end as when its pages were read
        with path_of(source.name).open("rb") as raw, parquet.ParquetFile(raw) as file:
            if self._parquet is None:
                sink = pa.PythonFile(ArrowFile(self._output), mode="w")
                schema = file.schema_arrow
                for field in _COUNT_FIELDS if pages.counts else ():
                    schema = schema.append(field)
                made = parquet.ParquetWriter(sink, schema, compression=_codec(file.metadata))
                self._parquet = self.enter_context(made)
            for group in range(file.num_row_groups):
                if pages.ended:
                    break
                for rows in _kept_rows(file, group, pages, batch_rows):
                    self._parquet.write_table(_counted(rows, pages))


def size_of(target: Path) -> int:
    """Bytes of a file, or of all files below a directory; 0 if there is none."""
    if target.is_dir():
        return sum(each.stat().st_size for each in target.rglob("*") if each.is_file())
    return target.stat().st_size if target.exists() else 0


def _copy_lines(source: JsonlSource, pages: KeptPages, file: BinaryIO) -> None:
    again = JsonlSource(source.name)  # the other one keeps what was damaged when it was read
    again.strict = False
    lines = again.lines()
    while not pages.ended and (line := next(lines, None)):
        if pages.take():
            file.write(_with_counts(source, _one_line(line[0]), pages))


def _with_counts(source: Source, line: bytes, pages: KeptPages) -> bytes:
    """Return a line of JSON with the counts of the cluster, if they are written."""
    if pages.counts is None:
        return line
    size, sources = next(pages.counts)
    has_names = any(each.encode() in line for each in COUNTS)
    if has_names and not (json_fields(line) or {}).keys().isdisjoint(COUNTS):
        raise _has_counts(source)
    return b'%b,"cluster_size":%d,"cluster_sources":%b}\n' % (
        line.rstrip()[:-1], size, msgspec.json.encode(sources),
    )  # fmt: skip


def _has_counts(source: Source) -> SettingsError:
    return SettingsError(f"cluster-counts: {source.name} has a column {' or '.join(COUNTS)} already")


def _one_line(text: bytes) -> bytes:
    """Return a line as it is. An item of an array may have lain on several, and gets one of its own."""
    if b"\n" in text[:-1]:
        text = msgspec.json.format(text, indent=-1)
    return text if text.endswith(b"\n") else text + b"\n"


def _copy_csv(source: CsvSource, pages: KeptPages, file: BinaryIO, *, with_header: bool) -> None:
    with open_counting(source.name) as raw:
        content = decompressed(raw)
        if with_header and content.peek(len(codecs.BOM_UTF8)).startswith(codecs.BOM_UTF8):
            file.write(codecs.BOM_UTF8)
        rows = CsvRows(decoded(content, source.name, "surrogateescape"), source.name)
        end = rows.header[len(rows.header.rstrip("\r\n")) :] or "\n"
        counts = pages.counts
        if with_header:
            header = [rows.header.rstrip("\r\n"), *(COUNTS if counts else ())]
            file.write((rows.delimiter.join(header) + end).encode("utf-8", "surrogateescape"))
        coming = iter(rows)
        while not pages.ended and (row := next(coming, None)):
            if pages.take():
                whole = row.stored.endswith(("\n", "\r"))
                text = row.stored if whole else row.stored + end
                if counts:
                    size, sources = next(counts)
                    lacking = [""] * (len(rows.names) - len(row.cells))
                    quoted = '"' + json.dumps(sources, ensure_ascii=False).replace('"', '""') + '"'
                    text = rows.delimiter.join([text.rstrip("\r\n"), *lacking, str(size), quoted]) + end
                file.write(text.encode("utf-8", "surrogateescape"))


def _counted(rows: pa.Table, pages: KeptPages) -> pa.Table:
    """Return rows with the counts of their clusters, if they are written."""
    if pages.counts is None:
        return rows
    sizes, sources = zip(*islice(pages.counts, rows.num_rows), strict=True)
    columns = sizes, [list(each.items()) for each in sources]
    for field, values in zip(_COUNT_FIELDS, columns, strict=True):
        rows = rows.append_column(field, pa.array(values, field.type))
    return rows


def _kept_rows(
    file: parquet.ParquetFile, group: int, pages: KeptPages, batch_rows: int
) -> Iterator[pa.Table]:
    """Yield the rows of a row group that are kept: at once, unless they are very large."""
    parts: list[pa.Table] = []
    size = 0
    for batch in file.iter_batches(batch_rows, row_groups=[group]):
        if runs := _runs(pages, batch.num_rows):
            slices = [batch.slice(first, end - first) for first, end in runs]
            # Slices hold the whole batch: copied, they let go of it. No type is without slices.
            parts.append(pa.Table.from_batches(slices, file.schema_arrow).combine_chunks())
            size += parts[-1].nbytes
        if size >= GROUP_BYTES:
            yield pa.concat_tables(parts)
            parts, size = [], 0
        if pages.ended:
            break
    if parts:
        yield pa.concat_tables(parts)


def _runs(pages: KeptPages, rows: int) -> list[tuple[int, int]]:
    """Return start and end of each run of rows that are kept."""
    runs: list[tuple[int, int]] = []
    for row in range(rows):
        if pages.ended:
            break
        if not pages.take():
            continue
        if runs and runs[-1][1] == row:
            runs[-1] = runs[-1][0], row + 1
        else:
            runs.append((row, row + 1))
    return runs


def _codec(metadata: Any) -> str:
    """The compression of the first column."""
    if not metadata.num_row_groups or not metadata.num_columns:
        return "zstd"
    codec: str = metadata.row_group(0).column(0).compression
    return _CODECS.get(codec, codec)


def _copy_saved(source: DirectorySource, pages: KeptPages, target: Path) -> None:
    root = Path(source.name)
    again = DirectorySource(source.name)  # the other one keeps what was damaged when it was read
    again.strict = False
    messages = iter(again)
    if root.is_dir():
        target.mkdir()
    while not pages.ended and (message := next(messages, None)):
        if pages.take():
            file = Path(message.file)
            _copy_file_as_it_is(file, target / file.relative_to(root) if root.is_dir() else target)
    pages.end()


def _copy_file_as_it_is(file: Path, target: Path) -> None:
    """Copy a file with its time, which is that of its page."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)
    except OSError as error:
        raise OutputError(f"{target}: {error.strerror}") from error

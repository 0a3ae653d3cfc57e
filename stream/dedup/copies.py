"""Copies the pages of a source that are kept, in its own format and as they are."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import lzma
import re
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import msgspec
import pyarrow as pa
import zstandard
from pyarrow import parquet

from stream.dedup.archives import copy_archive
from stream.dedup.kept_pages import KeptPages
from stream.errors import OutputError, PageError, SettingsError
from stream.objects import path_of
from stream.output import Output, writing
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

ROWS: Final = 256
"""Rows of a Parquet file that are decoded at a time."""
GROUP_BYTES: Final = 64 << 20
"""Bytes of decoded rows after which a row group is written, even if the source's goes on."""
_CODECS: Final = {"UNCOMPRESSED": "NONE", "LZ4_RAW": "LZ4"}
"""Compressions of Parquet that pyarrow's writer has other names for."""


def copy(source: Source, pages: KeptPages, target: Path) -> None:
    """Write the pages of a source that are kept. A file appears whole or not at all, compressed if its suffix
    says so; a directory is for the caller to rename.

    Raises OutputError, and SettingsError if the source has fewer pages now.
    """
    try:
        if isinstance(source, DirectorySource):
            _copy_saved(source, pages, target)
        else:
            with writing(target) as output:
                _copy_file(source, pages, output, target)
                pages.end()
    except (PageError, pa.ArrowException, csv.Error, *DAMAGED) as error:
        raise SettingsError(f"source {source.name}: could not be read a second time: {error}") from error


def _copy_file(source: Source, pages: KeptPages, output: Output, target: Path) -> None:
    compression = compression_by_name(target)
    if isinstance(source, ParquetSource):
        _copy_parquet(source, pages, output)
    elif isinstance(source, WarcSource):
        copy_archive(source, pages, output, compression)
    else:
        with compressing(compression, cast(BinaryIO, output)) as file:
            if isinstance(source, CsvSource):
                _copy_csv(source, pages, file)
            elif isinstance(source, JsonlSource):
                _copy_lines(source, pages, file)
            else:
                raise TypeError(source)


def size_of(target: Path) -> int:
    """Bytes of a file, or of all files below a directory."""
    if target.is_dir():
        return sum(each.stat().st_size for each in target.rglob("*") if each.is_file())
    return target.stat().st_size


def compression_by_name(path: Path) -> Compression | None:
    """The compression that a file of this name has."""
    return _BY_SUFFIX.get(path.suffix.lower())


_BY_SUFFIX: Final[dict[str, Compression]] = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}


def compressing(kind: Compression | None, file: BinaryIO) -> Any:
    """A context manager: a file that compresses what is written to it."""
    match kind:
        case "gzip":
            return gzip.GzipFile("", "wb", fileobj=file, mtime=0)
        case "bzip2":
            return bz2.BZ2File(file, "wb")
        case "xz":
            return lzma.LZMAFile(file, "wb")
        case "zstd":
            return zstandard.ZstdCompressor().stream_writer(file, closefd=False)
    return nullcontext(file)


def _copy_lines(source: JsonlSource, pages: KeptPages, file: BinaryIO) -> None:
    again = JsonlSource(source.name)  # the other one keeps what was damaged when it was read
    again.strict = False
    lines = again.lines()
    while not pages.ended and (line := next(lines, None)):
        if pages.take():
            file.write(_one_line(line[0]))


def _one_line(text: bytes) -> bytes:
    """Return a line as it is. An item of an array may have lain on several, and gets one of its own."""
    if b"\n" in text[:-1]:
        text = msgspec.json.format(text, indent=-1)
    return text if text.endswith(b"\n") else text + b"\n"


def _copy_csv(source: CsvSource, pages: KeptPages, file: BinaryIO) -> None:
    with open_counting(source.name) as raw:
        content = decompressed(raw)
        if content.peek(len(codecs.BOM_UTF8)).startswith(codecs.BOM_UTF8):
            file.write(codecs.BOM_UTF8)
        rows = CsvRows(decoded(content, source.name, "surrogateescape"), source.name)
        ends = re.search(r"\r?\n?$", rows.header)
        file.write(rows.header.encode("utf-8", "surrogateescape"))
        coming = iter(rows)
        while not pages.ended and (row := next(coming, None)):
            if pages.take():
                whole = row.stored.endswith(("\n", "\r"))
                text = row.stored if whole else row.stored + (ends[0] if ends else "")
                file.write(text.encode("utf-8", "surrogateescape"))


def _copy_parquet(source: ParquetSource, pages: KeptPages, output: Output) -> None:
    """Copy rows with all columns, their types, and the metadata of the file."""
    batch_rows = table.ROWS if source.damage_count else ROWS  # the same end as when its pages were read
    with path_of(source.name).open("rb") as raw, parquet.ParquetFile(raw) as file:
        sink = pa.PythonFile(ArrowFile(output), mode="w")
        codec = _codec(file.metadata)
        with parquet.ParquetWriter(sink, file.schema_arrow, compression=codec) as writer:
            for group in range(file.num_row_groups):
                if pages.ended:
                    break
                for rows in _kept_rows(file, group, pages, batch_rows):
                    writer.write_table(rows)


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

"""Opens the source at a path: input formats by name, by file name and by content.

A new input format is a `Source` in a file of its own, with an entry in FORMATS and _SOURCES or
_TABLES here.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import repeat
from pathlib import Path
from typing import Final

from stream.errors import PageError, SettingsError
from stream.objects import ObjectPath, is_url
from stream.pages.columns import NO_COLUMNS, Columns, option_of
from stream.pages.members import Members
from stream.sources.compressed import STDIN, beginning, first_bytes, is_read_once, open_counting
from stream.sources.directory import CONTENT_TYPES, DirectorySource, begins_as_html, page_type
from stream.sources.encoding import encoding_of
from stream.sources.file import FileSource
from stream.sources.jsonl import JsonlSource
from stream.sources.other_formats import other_format
from stream.sources.repeated_ids import RepeatedIds
from stream.sources.rows import MARKS, RowsSource, is_rows
from stream.sources.source import Source
from stream.sources.table import CsvSource, ParquetSource
from stream.sources.warc import WarcSource

FORMATS: Final = ("auto", "jsonl", "warc", "directory", "csv", "parquet", "rows")
_WARC: Final = re.compile(r"\.(warc|wet)(\.(gz|bz2|xz|zst))?$", re.IGNORECASE)
_JSONL: Final = re.compile(r"\.(jsonl|ndjson|jl|json)(\.(gz|bz2|xz|zst))?$", re.IGNORECASE)

_CSV: Final = re.compile(r"\.(csv|tsv)(\.(gz|bz2|xz|zst))?$", re.IGNORECASE)
_PARQUET: Final = re.compile(r"\.(parquet|pq)$", re.IGNORECASE)
_PATTERNS: Final = {"warc": _WARC, "jsonl": _JSONL, "csv": _CSV, "parquet": _PARQUET}
_SOURCES: Final[dict[str, Callable[[str], Source]]] = {"warc": WarcSource, "rows": RowsSource}
_TABLES: Final[dict[str, Callable[[str, Columns], Source]]] = {
    "jsonl": JsonlSource,
    "csv": CsvSource,
    "parquet": ParquetSource,
}
_COLUMNLESS: Final = {
    "warc": "a web archive, whose records have their URLs and contents",
    "rows": "rows, whose pages are fingerprinted already",
    "directory": "saved pages, whose URLs are their paths",
}


def open_source(
    path: str,
    *,
    format: str = "auto",  # noqa: A002 - the option's name
    base_url: str | None = None,
    columns: Columns = NO_COLUMNS,
) -> Source:
    """The source at `path`: a directory, a WARC, JSON Lines, CSV, Parquet, rows, one saved page, or `-`. All
    but saved pages may be objects, such as `s3://bucket/key`.

    The format `auto` is detected by name, then by content. Standard input is JSON Lines unless `format` is
    `warc` or `csv`. `base_url` is prefixed to the relative paths of saved pages; without it, these have
    `file:` URLs. `columns` names those columns of JSON Lines, CSV and Parquet that have other names than
    the fields of page messages. Raises SettingsError.
    """
    if format not in FORMATS:
        raise SettingsError(f"format: {format!r} is not one of {', '.join(FORMATS)}")
    if path == STDIN:
        if format in ("directory", "parquet", "rows"):
            raise SettingsError(f"format: standard input cannot be {format}, only jsonl, warc or csv")
        return _open_as("jsonl" if format == "auto" else format, path, columns)
    if is_url(path):
        return _open_object(path, format, columns)
    if not Path(path).exists():
        raise SettingsError(f"source {path}: no such file or directory")
    if Path(path).name in MARKS:
        raise SettingsError(f"source {path}: belongs to rows; name their directory, {Path(path).parent}")
    if is_read_once(path):
        return _open_pipe(path, format, columns)
    kind = _kind(path) if format == "auto" else format
    if Path(path).is_dir() and kind not in ("directory", "rows"):
        raise SettingsError(f"format: {path} is a directory, not {kind}")
    if kind == "directory":
        if not Path(path).is_dir() and page_type(path) is None and not _is_other_page(path):
            suffixes = ", ".join(CONTENT_TYPES)
            raise SettingsError(
                f"source {path}: neither a directory nor HTML nor a file with a suffix of {suffixes}"
            )
        _refuse_columns(kind, path, columns)
        return DirectorySource(path, base_url)
    return _open_as(kind, path, columns)


def _open_pipe(path: str, format: str, columns: Columns) -> Source:  # noqa: A002 - the option's name
    """Open a pipe, or a device. It is read once: what tells its format stays to be read."""
    kind = kind_by_name(path) if format == "auto" else format
    begun = None
    if kind is None:
        try:
            begun = open_counting(path)
        except PageError as error:
            raise SettingsError(f"source {error.detail}") from None
        start = beginning(Members(io.BytesIO(begun.first_bytes())))
        kind = _kind_by_content(path, start) if start else "jsonl"
    if kind in ("directory", "parquet", "rows"):
        raise SettingsError(f"format: {path} is a pipe, which cannot be {kind}, only jsonl, warc or csv")
    source = _open_as(kind, path, columns)
    if isinstance(source, FileSource):
        source.begun = begun
    return source


def _open_as(kind: str, path: str, columns: Columns) -> Source:
    if kind in _TABLES:
        return _TABLES[kind](path, columns)
    _refuse_columns(kind, path, columns)
    return _SOURCES[kind](path)


def _refuse_columns(kind: str, path: str, columns: Columns) -> None:
    """Raise SettingsError for columns of a source that has none."""
    for field in columns.names:
        raise SettingsError(f"{option_of(field)}: {path} is {_COLUMNLESS[kind]}; it has no columns to name")
    if columns.place_ids:
        raise SettingsError(f"place-ids: {path} is {_COLUMNLESS[kind]}")


def open_sources(
    paths: Sequence[str],
    *,
    format: str = "auto",  # noqa: A002 - the option's name
    base_urls: Sequence[str] = (),
    columns: Columns = NO_COLUMNS,
) -> list[Source]:
    """Open several sources; of a prefix `s3://bucket/prefix` its rows, or else all objects below it, in order
    of their names; of a directory without pages all files below it, if these are data sets or archives.
    `base_urls` holds one base URL for each source of saved pages, in order, or one for all,
    or none.

    Raises SettingsError, also if two sources contain pages with the same URL.
    """
    named = [each for path in paths for each in _parts(path, format, mirrored=bool(base_urls))]
    opened = [open_source(path, format=format, columns=columns) for path in named]
    saved = [each for each in opened if isinstance(each, DirectorySource)]
    if base_urls:
        if len(base_urls) not in (1, len(saved)):
            raise SettingsError(
                f"base-url: {len(base_urls)} for {len(saved)} sources of saved pages; give one for each,"
                " in their order, or one for all"
            )
        bases = iter(base_urls) if len(base_urls) > 1 else repeat(base_urls[0])
        opened = [
            DirectorySource(each.name, next(bases)) if isinstance(each, DirectorySource) else each
            for each in opened
        ]
    _refuse_shared_urls([each for each in opened if isinstance(each, DirectorySource)])
    repeated_ids = RepeatedIds()
    for each in opened:
        if each.columns.has_ids or isinstance(each, RowsSource):
            each.repeated_ids = repeated_ids
    return opened


def _refuse_shared_urls(saved: Sequence[DirectorySource]) -> None:
    """Raise SettingsError if two sources share a URL. Only sources of which one's URL prefix begins with the
    other's can, so only their pages are listed."""
    listed: dict[str, str] = {}
    begun: DirectorySource | None = None
    unlisted = True
    for source in sorted(saved, key=lambda each: each.begins):
        if begun is None or not source.begins.startswith(begun.begins):
            begun, unlisted, listed = source, True, {}
            continue
        for each in (begun, source) if unlisted else (source,):
            for url in each.urls():
                if url in listed:
                    raise SettingsError(
                        f"sources {listed[url]} and {each.name}: both have a page {url}; name each page"
                        " once, and give directories a --base-url each, in their order, or none, for file:"
                        " URLs"
                    )
                listed[url] = each.name
        unlisted = False


def _open_object(url: str, format: str, columns: Columns) -> Source:  # noqa: A002 - the option's name
    if format == "directory":
        raise SettingsError(f"source {url}: saved pages are not read from an object store")
    path = ObjectPath(url)
    with _readable(url):
        if path.is_dir():
            if format in ("auto", "rows"):
                return _open_as("rows", url, columns)
            raise SettingsError(f"format: {url} has objects below it, and is not {format}")
        if not path.is_file():
            raise SettingsError(f"source {url}: no such object, and none below it")
        return _open_as(_kind_of_file(url) if format == "auto" else format, url, columns)


def _parts(path: str, format: str, *, mirrored: bool) -> list[str]:  # noqa: A002 - the option's name
    """The sources of a name: itself, or the objects below a prefix, or the shards in a directory. Raises
    SettingsError."""
    if path == STDIN or format == "rows":
        return [path]
    if not is_url(path):
        sharded = format == "auto" and not mirrored and Path(path).is_dir() and not is_rows(Path(path))
        return _shards(path) if sharded else [path]
    with _readable(path):
        if not (prefix := ObjectPath(path)).is_dir() or is_rows(prefix):
            return [path]
        names = [str(each) for each in prefix.files() if not each.name.startswith(("_", "."))]
    if not names:
        raise SettingsError(f"source {path}: no objects below it")
    return names


def _shards(path: str) -> list[str]:
    """The files of data below a directory without pages; the directory if there are none. Raises
    SettingsError if there are both, or files of unknown formats beside."""
    directory = DirectorySource(path)
    files = [each for each in directory.all_files() if not _is_hidden(each.relative_to(path))]
    data = next((each for each in files if kind_by_name(each.name)), None)
    if page := next(directory.files(), None):
        if data is None:
            return [path]
        raise SettingsError(
            f"source {path}: has pages ({page}) and data ({data}); for the pages add --base-url or --format"
            " directory, for the data name its files"
        )
    if data is None and not any(_kind_of_start(first_bytes(str(each))) for each in files):
        return [path]
    for each in files:
        _kind_of_file(str(each))
    return [str(each) for each in files]


def _is_hidden(path: Path) -> bool:
    """Whether a file belongs to a program: `_SUCCESS`, `.part-0.crc`."""
    return any(name.startswith(("_", ".")) for name in path.parts)


@contextmanager
def _readable(url: str) -> Iterator[None]:
    """Raise SettingsError for an object that cannot be read."""
    try:
        yield
    except OSError as error:
        raise SettingsError(f"source {url}: {error.strerror}") from None


def _kind(path: str) -> str:
    if Path(path).is_dir() and is_rows(Path(path)):
        return "rows"
    if Path(path).is_dir() or page_type(path):
        return "directory"
    if kind_by_name(path) is None and _is_other_page(path):
        return "directory"
    return _kind_of_file(path)


def _is_other_page(path: str) -> bool:
    """Whether a file of another suffix than pages have is one by its content."""
    with suppress(OSError):
        return Path(path).is_file() and begins_as_html(Path(path))
    return False  # reading it names why


def kind_by_name(path: str) -> str | None:
    """The format that the name of a file tells, of FORMATS; None if it tells none."""
    return next((kind for kind, pattern in _PATTERNS.items() if pattern.search(path)), None)


def _kind_of_file(path: str) -> str:
    return kind_by_name(path) or _kind_by_content(path, first_bytes(path))


def _kind_by_content(path: str, start: bytes) -> str:
    """The format of a file that begins so, decompressed. Raises SettingsError."""
    if kind := _kind_of_start(start):
        return kind
    if advice := other_format(path, start):
        raise SettingsError(f"source {path}: {advice}")
    raise SettingsError(f"source {path}: neither its name nor its content tells its format; see --format")


def _kind_of_start(start: bytes) -> str | None:
    """The format that the beginning of a file tells; None if it tells none."""
    if start.lstrip(b"\r\n")[:5].upper() == b"WARC/":
        return "warc"
    if start.startswith(b"PAR1"):
        return "parquet"
    text = start.decode(encoding_of(start), "replace")
    return "jsonl" if text.lstrip().startswith(("{", "[")) else None

"""Opens the source at a path: input formats by name, by file name and by content.

A new input format is a `Source` in a file of its own, with an entry in FORMATS and _SOURCES or
_TABLES here.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import repeat
from pathlib import Path
from typing import Final, NamedTuple

from stream.errors import PageError, SettingsError
from stream.pages.columns import NO_COLUMNS, Columns, option_of
from stream.pages.members import Members
from stream.sources.compressed import STDIN, CountingFile, beginning, first_bytes, is_read_once, open_counting
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
from stream.stores.objects import ObjectPath, is_url

FORMATS: Final = ("auto", "jsonl", "warc", "directory", "csv", "parquet", "rows")
_TELLING: Final = 16
"""Bytes by which the format of a pipe is told."""
_WARC: Final = re.compile(r"\.(warc|wet)(\.(gz|bz2|xz|zst))?$", re.IGNORECASE)
_JSONL: Final = re.compile(r"\.(jsonl|ndjson|jl|json)(\.(gz|bz2|xz|zst))?$", re.IGNORECASE)

_CSV: Final = re.compile(r"\.(csv|tsv)(\.(gz|bz2|xz|zst))?$", re.IGNORECASE)
_PARQUET: Final = re.compile(r"\.(parquet|pq)$", re.IGNORECASE)
_ABOUT: Final = re.compile(
    r"(readme|licen[cs]e|copying|notice|citation|changelog|authors)([-.].*)?|dataset_infos\.json"
    r"|(md5|sha\d+)sums(\.txt)?|.+\.(md5|sha\d+)",
    re.IGNORECASE,
)
"""Files that say what the data beside them are, as repositories of data sets have them."""
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
    with _readable(path):
        if is_url(path):
            return _open_object(path, format, columns)
        return _open_local(path, format, base_url, columns)


def _open_local(path: str, format: str, base_url: str | None, columns: Columns) -> Source:  # noqa: A002
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
        start = _start_of_pipe(begun)
        kind = _kind_by_content(path, start) if start else "jsonl"
    if kind in ("directory", "parquet", "rows"):
        raise SettingsError(f"format: {path} is a pipe, which cannot be {kind}, only jsonl, warc or csv")
    source = _open_as(kind, path, columns)
    if isinstance(source, FileSource):
        source.begun = begun
    return source


def _start_of_pipe(begun: CountingFile) -> bytes:
    """The beginning of what a pipe has, decompressed: no more of it than tells its format, as the rest may be
    long in coming."""
    stored = start = b""
    while len(start.strip()) < _TELLING and not _kind_of_start(start):
        more = begun.look_ahead()
        if len(more) == len(stored):
            break
        stored, start = more, beginning(Members(io.BytesIO(more)))
    return start


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
    opened: list[Source] = []
    for path in paths:
        with _readable(path):
            parts = _parts(path, format, mirrored=bool(base_urls))
        first, *others = [open_source(each, format=format, columns=columns) for each in parts.data]
        first.beside = parts.beside
        for each in (first, *others):
            each.argument = path
        opened += [first, *others]
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
    if path.is_dir():
        if format in ("auto", "rows"):
            return _open_as("rows", url, columns)
        raise SettingsError(f"format: {url} has objects below it, and is not {format}")
    if not path.is_file():
        raise SettingsError(f"source {url}: no such object, and none below it")
    return _open_as(_kind_of_file(url) if format == "auto" else format, url, columns)


class _Parts(NamedTuple):
    """What a name stands for."""

    data: Sequence[str]
    """The sources: itself, or the objects below a prefix, or the shards in a directory."""
    beside: Sequence[str] = ()
    """What is beside them."""


def _parts(path: str, format: str, *, mirrored: bool) -> _Parts:  # noqa: A002 - the option's name
    """The sources of a name. Raises SettingsError."""
    if path == STDIN or format == "rows":
        return _Parts([path])
    if not is_url(path):
        sharded = format == "auto" and not mirrored and Path(path).is_dir() and not is_rows(Path(path))
        return _shards(path) if sharded else _Parts([path])
    if not (prefix := ObjectPath(path)).is_dir() or is_rows(prefix):
        return _Parts([path])
    parts = _apart(path, map(str, prefix.files()))
    if not parts.data:
        raise SettingsError(f"source {path}: no objects below it")
    return parts


def _shards(path: str) -> _Parts:
    """The files of data below a directory without pages; the directory if there are none. Raises
    SettingsError if there are both, files of unknown formats beside, or directories that cannot be read."""
    directory = DirectorySource(path)
    directory.strict = False
    parts = _apart(path, map(str, directory.all_files()))
    data = next(filter(kind_by_name, parts.data), None)
    beside = frozenset(parts.beside)
    if page := next((each for each in directory.files() if str(each) not in beside), None):
        if data is None:
            return _Parts([path])
        raise SettingsError(
            f"source {path}: has pages ({page}) and data ({data}); for the pages add --base-url or --format"
            " directory, for the data name its files"
        )
    if data is None and not any(_kind_of_start(first_bytes(each)) for each in parts.data):
        return _Parts([path])
    for damage in directory.damages:
        raise SettingsError(f"source {damage.error}")
    for each in parts.data:
        _kind_of_file(each)
    for other in Path(path).rglob("*"):
        if (other.is_symlink() and other.is_dir()) or is_read_once(str(other)):
            raise SettingsError(f"source {other}: a link to a directory, or a pipe; name it itself")
    return parts


def _apart(root: str, files: Iterable[str]) -> _Parts:
    """Part the files below `root` into data and what is beside them."""
    data, beside = list[str](), list[str]()
    for each in files:
        (beside if _is_beside(each[len(root) :]) else data).append(each)
    return _Parts(data, beside)


def _is_beside(name: str) -> bool:
    """Whether a file beside data belongs to a program, such as `_SUCCESS` or `.part-0.crc`, or says what the
    data are."""
    parts = Path(name).parts
    return any(each.startswith(("_", ".")) for each in parts) or _ABOUT.fullmatch(parts[-1]) is not None


@contextmanager
def _readable(url: str) -> Iterator[None]:
    """Raise SettingsError for a file or an object that cannot be read."""
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

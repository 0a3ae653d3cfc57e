"""Fingerprints Arrow batches of pages in the calling process, for engines with processes of their own."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from stream.errors import SettingsError, attributed_to
from stream.fingerprint.row import Row, failed_row
from stream.fingerprint.scheme import Scheme
from stream.page_rows.page_fingerprinter import PageFingerprinter, ReadPage, with_columns_named
from stream.pages.arrow import MESSAGE, locate, message_rows, messages, milliseconds, refuse_unfit
from stream.pages.columns import NO_COLUMNS, Columns, Path, as_argument
from stream.pages.page import PAGE_BYTES
from stream.rows.arrow import FIRST, Place, batch_of
from stream.text.extract import OUT_OF_MEMORY

LAST: Final = 2**63 - 1
"""The last order that there is."""


def fingerprint_batch(
    pages: pa.RecordBatch,
    scheme: Scheme | None = None,
    seed: bytes | None = None,
    *,
    columns: Columns = NO_COLUMNS,
    page_bytes: int = PAGE_BYTES,
) -> pa.RecordBatch:
    """The rows of a batch of pages, in the same order; equal pages give equal rows, wherever they are made.

    `pages` has the columns of page messages (`url` and one of `html`, `text`, `body`; perhaps
    `content_type`, `charset`, `fetched_at`, `quality`), or the column `message` with whole messages.
    `columns` names those that have other names; `message` is then not read. Beside them stands
    `order` (an integer or timestamp) and, where several pages share one, `source` and `position`; they are
    copied, and so is `key`, the message key. The result has the columns `stream.rows.arrow.TYPES`.

    A bad page is a row with a reason, as it is in a stream, and so is one at which an exception is raised
    (`failed`). MemoryError is raised, since the limit is the engine's, which tries its task again. A page
    that never ends, or ends the process, does the same here: there is no deadline, and the engine decides
    what happens to its task.

    `seed` is that of the scheme; without it, the seed in its file, or the public one. Raises SettingsError
    for a table without these columns or with others' types, and for a scheme that cannot be used here.
    """
    located = refuse_misfits(pages.schema, columns)
    by_name = {name.lower(): pages.column(place) for place, name in enumerate(pages.schema.names)}
    fingerprinter = _fingerprinter(scheme or Scheme(), seed)
    given = messages(by_name[MESSAGE]) if located is None else message_rows(pages, located, columns.id_prefix)
    rows = [with_columns_named(row, columns) for row in _rows(fingerprinter, given, page_bytes)]
    keys = _cast("key", by_name["key"], pa.binary()) if "key" in by_name else [None] * len(rows)
    places = _places(by_name, pages.num_rows)
    return batch_of(fingerprinter.scheme, rows, places, keys)


@functools.lru_cache(maxsize=4)
def _fingerprinter(scheme: Scheme, seed: bytes | None) -> PageFingerprinter:
    """One for each scheme in a process, since its tables and compiled loops take a second to load."""
    fingerprinter = PageFingerprinter(scheme, seed)
    fingerprinter.warm()
    return fingerprinter


@attributed_to("pages")
def columns_read(names: Iterable[str], columns: Columns = NO_COLUMNS) -> list[str]:
    """Those columns of a table that `fingerprint_batch` reads, so that an engine need not fetch the others;
    whole ones for names that are nested in them.

    Raises SettingsError for a table without those that it needs.
    """
    _refuse_places(columns)
    names = list(names)
    lowered = _by_lower_case(names)
    if message := _message_column(lowered, columns):
        read = [message]
    else:
        located = columns.locate(names, lambda name: _outer(names, name), spelt=as_argument)
        read = [path[0] for path in located.values()]
    _refuse_unordered(lowered)
    beside = [lowered[name] for name in ("order", "source", "position", "key") if name in lowered]
    return list(dict.fromkeys([*read, *beside]))


def _outer(names: Sequence[str], name: str) -> Path | None:
    """The column that a nested one may be in."""
    root = name.partition(".")[0]
    return (root,) if root in names else None


@attributed_to("pages")
def refuse_misfits(schema: pa.Schema, columns: Columns = NO_COLUMNS) -> dict[str, Path] | None:
    """Where a table has the fields of pages; None if it has whole messages.

    Raises SettingsError for a table without the columns that `fingerprint_batch` needs, or with types that
    these cannot have, such as a list or a struct.
    """
    _refuse_places(columns)
    lowered = _by_lower_case(schema.names)
    located = None
    if message := _message_column(lowered, columns):
        refuse_unfit(MESSAGE, message, schema.field(message).type)
    else:
        located = locate(schema, columns, as_argument)
    _refuse_unordered(lowered)
    return located


def _refuse_places(columns: Columns) -> None:
    if columns.place_ids:
        raise SettingsError("columns: place_ids is for files, whose rows have places; name a column of ids")


def _message_column(lowered: dict[str, str], columns: Columns) -> str | None:
    """The column with whole messages, if it is read. `lowered` has columns by their names in lower case."""
    return lowered.get(MESSAGE) if columns == NO_COLUMNS else None


def _by_lower_case(names: Iterable[str]) -> dict[str, str]:
    return {name.lower(): name for name in names}


def _refuse_unordered(names: Iterable[str]) -> None:
    names = list(names)
    if "order" not in names:
        raise SettingsError(f"no column `order`, by which pages are judged; it has {', '.join(names)}")


def _places(columns: dict[str, Any], count: int) -> list[Place]:
    order = _order(columns["order"])
    source = _cast("source", columns["source"], pa.string()) if "source" in columns else [""] * count
    position = _cast("position", columns["position"], pa.int64()) if "position" in columns else [0] * count
    return [
        Place(FIRST if key is None else key, name or "", number or 0)
        for key, name, number in zip(order, source, position, strict=True)
    ]


def _order(column: pa.Array) -> list[int | None]:
    if pa.types.is_timestamp(column.type):
        return [None if key is None else max(FIRST, min(key, LAST)) for key in milliseconds(column)]
    if not pa.types.is_integer(column.type):
        raise SettingsError(f"pages: column `order` is {column.type}, neither an integer nor a timestamp")
    return _cast("order", column, pa.int64())


def _cast(name: str, column: pa.Array, kind: pa.DataType) -> list[Any]:
    """The values of a column as another type. Raises SettingsError."""
    try:
        converted = column.cast(kind)
        converted.validate(full=True)  # an engine may have strings that are not UTF-8
    except pa.ArrowException as error:
        raise SettingsError(f"pages: column `{name}` is {column.type}, not {kind}: {error}") from error
    values: list[Any] = converted.to_pylist()
    return values


def _rows(
    fingerprinter: PageFingerprinter, given: Iterable[bytes | dict[str, Any] | None], page_bytes: int
) -> list[Row]:
    """Read pages one by one, and fingerprint those that are pages together, which costs half as much."""
    read = [_read(fingerprinter, each, page_bytes) for each in given]
    try:
        return fingerprinter.rows_of(read)
    except MemoryError:
        raise
    except Exception:  # of one page of the batch: find out which
        return [_alone(fingerprinter, page) for page in read]


def _read(
    fingerprinter: PageFingerprinter, given: bytes | dict[str, Any] | None, page_bytes: int
) -> ReadPage | Row:
    try:
        if isinstance(given, dict):
            page = fingerprinter.page_of_fields(given, page_bytes)
        else:
            page = fingerprinter.decode(given, page_bytes)
        read = fingerprinter.read_page(page)
        if isinstance(read, Row) and (read.reason, read.detail) == ("extraction_failed", OUT_OF_MEMORY):
            raise MemoryError(f"{page.url}: not enough memory to extract its text")
    except MemoryError:  # the engine's limit, not the page's fault: the task is tried again
        raise
    except Exception as error:
        return failed_row(error)
    return read


def _alone(fingerprinter: PageFingerprinter, page: ReadPage | Row) -> Row:
    try:
        return fingerprinter.rows_of([page])[0]
    except MemoryError:
        raise
    except Exception as error:
        return failed_row(error)

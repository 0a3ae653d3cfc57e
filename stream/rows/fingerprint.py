"""Fingerprints Arrow batches of pages in the calling process, for engines with processes of their own."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from stream.children.guard import failed
from stream.errors import SettingsError
from stream.fingerprint.fingerprinter import Fingerprinter, ReadPage
from stream.fingerprint.row import Row
from stream.fingerprint.scheme import Scheme
from stream.pages.fields import FIELDS, message_fields, missing_columns
from stream.rows.columns import FIRST, Place, batch_of
from stream.text.extract import OUT_OF_MEMORY

PAGE_BYTES: Final = 16 << 20
"""Default of the setting `page_bytes`."""
MESSAGE: Final = "message"
"""Column with whole page messages (JSON), instead of the columns of their fields."""


def fingerprint_batch(
    pages: pa.RecordBatch,
    scheme: Scheme | None = None,
    seed: bytes | None = None,
    *,
    page_bytes: int = PAGE_BYTES,
    uncertain: bool = False,
) -> pa.RecordBatch:
    """The rows of a batch of pages, in the same order; equal pages give equal rows, wherever they are made.

    `pages` has the columns of page messages (`url` and one of `html`, `text`, `body`; perhaps
    `content_type`, `charset`, `fetched_at`), or the column `message` with whole messages. Beside them stands
    `order` (an integer or timestamp) and, where several pages share one, `source` and `position`; they are
    copied, and so is `key`, the message key. The result has the columns `stream.rows.columns.TYPES`.

    A bad page is a row with a reason, as it is in a stream, and so is one at which an exception is raised
    (`failed`). MemoryError is raised, since the limit is the engine's, which tries its task again. A page
    that never ends, or ends the process, does the same here: there is no deadline, and the engine decides
    what happens to its task.

    `seed` is that of the scheme; without it, the seed in its file, or the public one. Raises SettingsError
    for a table without these columns, and for a scheme that cannot be used here.
    """
    columns = {name.lower(): pages.column(place) for place, name in enumerate(pages.schema.names)}
    columns_read(columns)
    fingerprinter = _fingerprinter(scheme or Scheme(), seed)
    given = {name: _cells(columns[name]) for name in (*FIELDS, MESSAGE) if name in columns}
    rows = _rows(fingerprinter, given, pages.num_rows, page_bytes)
    return batch_of(
        fingerprinter.scheme,
        rows,
        _places(columns, pages.num_rows),
        columns["key"].cast(pa.binary()).to_pylist() if "key" in columns else [None] * len(rows),
        uncertain=uncertain,
    )


@functools.lru_cache(maxsize=4)
def _fingerprinter(scheme: Scheme, seed: bytes | None) -> Fingerprinter:
    """One for each scheme in a process, since its tables and compiled loops take a second to load."""
    fingerprinter = Fingerprinter(scheme, seed)
    fingerprinter.warm()
    return fingerprinter


def columns_read(names: Iterable[str]) -> list[str]:
    """Those columns of a table that `fingerprint_batch` reads, so that an engine need not fetch the others.

    Raises SettingsError for a table without those that it needs.
    """
    lowered = {name.lower(): name for name in names}
    missing = None if MESSAGE in lowered else missing_columns(lowered)
    if missing is None and "order" not in lowered:
        missing = "no column `order`, by which pages are judged; it has " + ", ".join(lowered)
    if missing:
        raise SettingsError(f"pages: {missing}")
    content = (MESSAGE,) if MESSAGE in lowered else FIELDS
    return [lowered[name] for name in (*content, "order", "source", "position", "key") if name in lowered]


def _places(columns: dict[str, Any], count: int) -> list[Place]:
    order = _order(columns["order"])
    source = columns["source"].cast(pa.string()).to_pylist() if "source" in columns else [""] * count
    position = columns["position"].cast(pa.int64()).to_pylist() if "position" in columns else [0] * count
    return [
        Place(FIRST if key is None else key, name or "", number or 0)
        for key, name, number in zip(order, source, position, strict=True)
    ]


def _order(column: pa.Array) -> list[int | None]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    elif not pa.types.is_integer(column.type):
        raise SettingsError(f"pages: column `order` is {column.type}, neither an integer nor a timestamp")
    found: list[int | None] = column.cast(pa.int64()).to_pylist()
    return found


def _cells(column: pa.Array) -> list[Any]:
    """The values of a column. One that Python cannot represent, such as a string that is not UTF-8, is the
    exception that it raises."""
    if pa.types.is_timestamp(column.type):  # of which Python has no nanoseconds
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    try:
        found: list[Any] = column.to_pylist()
    except Exception:
        found = [_cell(value) for value in column]
    return found


def _cell(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except Exception as error:
        return error


def _rows(
    fingerprinter: Fingerprinter, given: dict[str, list[Any]], count: int, page_bytes: int
) -> list[Row]:
    """Read pages one by one, and fingerprint those that are pages together, which costs half as much."""
    read = [
        _read(fingerprinter, {name: cells[index] for name, cells in given.items()}, page_bytes)
        for index in range(count)
    ]
    rows = iter(_together(fingerprinter, [each for each in read if not isinstance(each, Row)]))
    return [each if isinstance(each, Row) else next(rows) for each in read]


def _read(fingerprinter: Fingerprinter, cells: dict[str, Any], page_bytes: int) -> ReadPage | Row:
    try:
        for each in cells.values():
            if isinstance(each, Exception):
                return failed(each)
        if MESSAGE in cells:
            message = cells[MESSAGE]
            page = fingerprinter.decode(message.encode() if isinstance(message, str) else message, page_bytes)
        else:
            given = {name: value for name, value in cells.items() if value is not None}
            page = fingerprinter.page_of_fields(message_fields(given), page_bytes)
        read = page if isinstance(page, Row) else fingerprinter.read_page(page)
        if isinstance(read, Row) and (read.reason, read.detail) == ("extraction_failed", OUT_OF_MEMORY):
            raise MemoryError(f"{page.url}: not enough memory to extract its text")
    except MemoryError:  # the engine's limit, not the page's fault: the task is tried again
        raise
    except Exception as error:
        return failed(error)
    return read


def _together(fingerprinter: Fingerprinter, pages: Sequence[ReadPage]) -> list[Row]:
    try:
        return fingerprinter.rows(pages)
    except MemoryError:
        raise
    except Exception:  # of one page of the batch: find out which
        return [_alone(fingerprinter, page) for page in pages]


def _alone(fingerprinter: Fingerprinter, page: ReadPage) -> Row:
    try:
        return fingerprinter.rows([page])[0]
    except MemoryError:
        raise
    except Exception as error:
        return failed(error)

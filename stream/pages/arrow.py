"""Page messages from Arrow columns, of Parquet files and of engines. Needs pyarrow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute, parquet, types

from stream.errors import SettingsError
from stream.pages.column_names import fits
from stream.pages.columns import NO_COLUMNS, Columns, Path, as_options, one_of, url_of_id
from stream.pages.fields import message_fields, number_field, quality_field, time_field, unreadable
from stream.pages.page import CONTENT

MESSAGE: Final = "message"
"""Column with whole page messages (JSON), instead of the columns of their fields."""
UNREADABLE: Final = (ValueError, OverflowError, KeyError, pa.ArrowException)
"""Exceptions of a value that Python cannot have: no UTF-8, a date after the year 9999, nanoseconds, an
unknown time zone. pyarrow raises them for damage, too."""
_DAY: Final = 86_400_000
_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""Units of timestamps in a second."""

SAMPLE: Final = 100
"""Values of a column by which a suggestion is tried."""
MAX_TYPE: Final = 200
"""Longest type in an error, in characters: a struct's may have thousands of fields."""
_STRINGS: Final = (types.is_string, types.is_large_string, types.is_string_view)
_BYTES: Final = (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary)
_TIMES: Final = (types.is_timestamp, types.is_date, types.is_integer, types.is_floating)

_NUMBERS: Final = (types.is_integer, types.is_floating, types.is_decimal)


def locate(
    schema: pa.Schema,
    columns: Columns = NO_COLUMNS,
    spelt: Callable[[dict[str, str]], str] = as_options,
    values: Callable[[Path], list[Any]] | None = None,
) -> dict[str, Path]:
    """Return where a table has the fields of pages. Raises SettingsError for a table that lacks what pages
    need (see `Columns.locate`), and for a type that a field cannot have, such as a list: that is a mistake of
    the user, rather than many pages to reject. `values` reads some of a column, to try what is suggested."""

    def fit(field: str, name: str) -> bool:
        path = _nested(schema, name)
        if path is None:
            return False
        try:
            refuse_unfit(field, name, _type_at(schema, path))
        except SettingsError:
            return False
        return values is None or any(fits(field, value) for value in values(path))

    places = columns.locate(
        schema.names,
        lambda name: _nested(schema, name),
        listed=lambda: _listed(schema),
        spelt=spelt,
        fits=fit,
    )
    for field, path in places.items():
        if field == "quality" and columns.quality is None:
            continue  # a column of that name may mean something else, which costs no page
        refuse_unfit(field, ".".join(path), _type_at(schema, path))
    return places


def refuse_unfit(field: str, name: str, kind: pa.DataType) -> None:
    """Raise SettingsError for a column whose type no field of that name, or MESSAGE, can have."""
    values = _values(kind)
    fits: tuple[Any, ...] = _STRINGS
    due = "a string"
    if field in (*CONTENT, MESSAGE):
        fits, due = (*_STRINGS, *_BYTES), "a string or bytes"
    elif field == "fetched_at":
        fits, due = (*_STRINGS, *_TIMES), "a time, a date, a string or an integer"
    elif field == "quality":
        fits, due = _NUMBERS, "a number"
    elif field == "id":
        fits, due = (*_STRINGS, types.is_integer, types.is_floating), "a string or an integer"
    elif field == "label":
        fits = (*_STRINGS, *_TIMES, types.is_integer, types.is_boolean)
        due = "a string, an integer, a date or a boolean"
    if not types.is_null(values) and not any(each(values) for each in fits):
        raise SettingsError(f"column `{name}` is {str(kind)[:MAX_TYPE]}, not {due}")


def first_values(file: parquet.ParquetFile, path: Path) -> list[Any]:
    """Return the first SAMPLE values of a column."""
    batch = next(file.iter_batches(SAMPLE, columns=[".".join(path)]), None)
    return [] if batch is None else _read(_plain(_column_at(batch, path)))


def message_rows(
    batch: pa.RecordBatch, places: dict[str, Path], id_prefix: str = ""
) -> Iterator[dict[str, Any]]:
    """Yield the fields of the page message of each row, which the batch has in these places."""
    columns = [
        ("url" if field == "id" else field, _cells(field, _column_at(batch, path), id_prefix))
        for field, path in places.items()
    ]
    for index in range(batch.num_rows):
        row = {name: cells[index] for name, cells in columns}
        yield message_fields({name: cell for name, cell in row.items() if cell is not None})


def messages(column: pa.Array) -> list[bytes | None]:
    """Return the values of a column of messages. A string that is not UTF-8 is as malformed as
    these bytes are."""
    values: list[bytes | None] = _plain(column).cast(pa.large_binary()).to_pylist()
    return values


def milliseconds(column: pa.Array) -> list[int | None]:
    """Return timestamps as milliseconds since the epoch, rounded down. Those without a time zone are UTC."""
    unit = _SECOND[column.type.unit]
    return [
        None if moment is None else moment * 1000 // unit for moment in column.cast(pa.int64()).to_pylist()
    ]


def _nested(parent: Any, name: str) -> Path | None:
    """Return the path to a column in structs, of a schema or a struct. Raises SettingsError if several have
    the name."""
    names = [parent.field(place).name for place in range(_width(parent))]
    if (path := one_of(names, name)) is not None:
        return path
    root, dot, rest = name.partition(".")
    if not dot or (path := one_of(names, root)) is None:
        return None
    kind = parent.field(path[0]).type
    inner = _nested(kind, rest) if types.is_struct(kind) else None
    return None if inner is None else path + inner


def _width(parent: Any) -> int:
    return len(parent.names) if isinstance(parent, pa.Schema) else parent.num_fields


def _listed(schema: pa.Schema) -> Iterator[str]:
    """Yield the names of all columns, and of those in structs."""
    for field in schema:
        yield field.name
        if types.is_struct(field.type):
            yield from (f"{field.name}.{inner.name}" for inner in field.type)


def _type_at(schema: pa.Schema, path: Path) -> pa.DataType:
    kind = schema.field(path[0]).type
    for name in path[1:]:
        kind = kind.field(name).type
    return kind


def _column_at(batch: pa.RecordBatch, path: Path) -> pa.Array:
    column = batch.column(path[0])
    return compute.struct_field(column, list(path[1:])) if len(path) > 1 else column


def _cells(name: str, column: pa.Array, id_prefix: str) -> list[Any]:
    """Return the values of a column, as they stand in a message."""
    column = _plain(column)
    if name == "id":
        return _each(lambda value: _url_of_id(value, id_prefix), _read(column))
    if name == "quality":
        return _each(quality_field, _read(column))
    if name == "label" and not _is_string(column.type):
        return _read(column.cast(pa.string()))
    if name != "fetched_at" or types.is_null(column.type) or _is_string(column.type):
        return _read(column)
    kind = column.type
    if types.is_timestamp(kind):
        return _each(time_field, milliseconds(column))
    if types.is_date32(kind):
        return _each(lambda day: time_field(day * _DAY), column.cast(pa.int32()).to_pylist())
    if types.is_date64(kind):
        return _each(time_field, column.cast(pa.int64()).to_pylist())
    if types.is_integer(kind):
        return _each(time_field, column.to_pylist())
    return _each(lambda number: number_field(float(number)), column.to_pylist())


def _each(convert: Callable[[Any], Any], cells: list[Any]) -> list[Any]:
    return [None if cell is None else convert(cell) for cell in cells]


def _url_of_id(value: Any, prefix: str) -> Any:
    """Return the URL for an id; None for one that is empty or NaN, which pandas has for a missing integer."""
    if isinstance(value, float):
        if math.isnan(value):
            return None
        value = int(value) if value.is_integer() else repr(value)
    if isinstance(value, str | int):
        return url_of_id(str(value), prefix) if value != "" else None
    return value


def _read(column: pa.Array) -> list[Any]:
    """Return the values of a column. One that Python cannot have, such as a string that is not UTF-8, costs
    its own row."""
    try:
        values: list[Any] = column.to_pylist()
    except UNREADABLE:
        values = [_cell(value) for value in column]
    return values


def _cell(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except UNREADABLE as error:
        return unreadable(str(error))


def _plain(column: pa.Array) -> pa.Array:
    """Return the column without a dictionary, and without what an extension says of its type."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column.dictionary_decode() if types.is_dictionary(column.type) else column


def _values(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of a column, without a dictionary and an extension."""
    if isinstance(kind, pa.BaseExtensionType) and _is_string(kind.storage_type):
        kind = kind.storage_type
    return kind.value_type if types.is_dictionary(kind) else kind


def _is_string(kind: pa.DataType) -> bool:
    return any(each(kind) for each in _STRINGS)

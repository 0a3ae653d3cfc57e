"""The columns of fingerprinted pages, declared once: in a journal record, in a batch to judge and in Arrow.

A column is added by a line in `COLUMNS`, and by the field of `Row`, `Rows` or `Batch` that has its values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import nan
from operator import attrgetter
from sys import float_info
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.row import Row, Status
from stream.pages.columns import MAX_LABEL
from stream.pages.times import EARLIEST, LATEST
from stream.text.url import MAX_URL

NO_TIME: Final = -(2**63)
"""`fetched_at` of a page without one."""
LANGUAGE_BYTES: Final = 3
URL_DIGEST_BYTES: Final = 16
_DIGEST: Final = np.dtype(("V", URL_DIGEST_BYTES))

U8, U32, U64, I64, F64 = (np.dtype(kind) for kind in ("<u1", "<u4", "<u8", "<i8", "<f8"))
LETTERS: Final = np.dtype(f"S{LANGUAGE_BYTES}")
STRING: Final = "string"
"""The record has the strings' sizes; their bytes stand in `strings`."""
MAP: Final = "map"
"""The record has a map from the index of a row to its value, which few rows have."""
ANY: Final = ()


class Column(NamedTuple):
    """A column of rows."""

    name: str
    journal: np.dtype[Any] | Literal["string", "map"] | None
    """In a journal record: the type of its numbers, which stand there back to back; STRING or MAP; or None if
    records do not have it."""
    arrow: str | None
    """Type in Arrow; None if rows in Arrow do not have it."""
    meaning: str
    nullable: bool = True
    """Whether rows in Arrow may lack a value."""
    judged: bool = False
    """Whether a batch to judge has it."""
    widths: tuple[int, ...] = (1,)
    """Numbers of each row, the same in all rows of a record; which of them depends on the scheme."""
    least: float | None = None
    most: float | None = None
    """Bounds of a number, besides those of its type; or the maximum characters of a string."""
    none: float | bytes | None = None
    """The number of a row without a value, which may be out of bounds."""
    omitted: Literal["never", "numbers", "column"] = "never"
    """What a record omits in which no row has a value: the numbers, so that the column is empty; or the
    column. Every column that is added to a version of the format is one that records may omit."""


# fmt: off
COLUMNS: Final = (
    Column("order", None, "int64",
           "order key: number of the page in the input, or its time in milliseconds", nullable=False),
    Column("source", None, "string", "the file or table that the page comes from", nullable=False),
    Column("position", None, "int64", "number of the page in `source`", nullable=False),
    Column("url", STRING, "string", "URL as the crawler sent it", judged=True, most=MAX_URL),
    Column("key", STRING, "binary", "key of the page message, which the verdict gets", judged=True),
    Column("status", U8, "int8", "value of `Status`",
           nullable=False, judged=True, most=max(Status)),
    Column("fingerprint", U64, "binary",
           "SimHash: one or two words, the upper one first; big-endian in Arrow", judged=True, widths=(1, 2)),
    Column("sketch", U64, "binary", "of the shingles, of the scheme's size", judged=True, widths=ANY),
    Column("text_hash", U8, "binary", "keyed hash of the normalised text", judged=True, widths=(16,)),
    Column("url_digest", U8, "binary",
           "keyed digest of the URL key, by which URLs are compared; zeros for none, which are null in Arrow",
           judged=True, widths=(URL_DIGEST_BYTES,)),
    Column("length", U32, "int64", "characters of the normalised text; 0 if rejected", nullable=False),
    Column("language", LETTERS, "string", "declared language (`Row.language`); empty if unknown",
           nullable=False, none=b"", omitted="numbers"),
    Column("offset", I64, None, "offset of the page message in its source partition", judged=True),
    Column("fetched_at", I64, "int64", "milliseconds since the epoch",
           judged=True, least=EARLIEST, most=LATEST, none=NO_TIME),
    Column("quality", F64, "float64", "a number that the crawler gives: higher is better to keep",
           least=-float_info.max, most=float_info.max, none=nan, omitted="column"),
    Column("reason", MAP, "string", "why the page was rejected, as a code", judged=True, most=MAX_URL),
    Column("traceparent", MAP, None, "W3C Trace Context of the page message, which the verdict gets",
           judged=True, omitted="column"),
    Column("detail", None, "string", "why the page was rejected, for people"),
    Column("share", None, None, "share of the visible text that is compared (`Row.share`)"),
    Column("label", None, "string", "by what the page is counted (`--count-by`)", most=MAX_LABEL),
    Column("scheme", None, "string", "id of the scheme; a journal record has it once", nullable=False),
)
# fmt: on
NUMBERS: Final = tuple((each, each.journal) for each in COLUMNS if isinstance(each.journal, np.dtype))
"""The columns that are buffers of numbers in a journal record, and the type of these."""
BOUNDED: Final = tuple((each, each.most) for each, _ in NUMBERS if each.most is not None)
STRINGS: Final = tuple(each for each in COLUMNS if each.journal == STRING)
MAPS: Final = tuple(each for each in COLUMNS if each.journal == MAP)


def bounds_of(column: Column, dtype: np.dtype[Any]) -> tuple[float, float]:
    """Return the least and the largest number of a column."""
    least, most = column.least, column.most
    if least is None or most is None:
        limits = np.iinfo(dtype)
        least, most = int(limits.min) if least is None else least, int(limits.max) if most is None else most
    return least, most


def numbers_of_rows(column: Column, dtype: np.dtype[Any], rows: Sequence[Row]) -> NDArray[Any]:
    """Convert a column of `Row`: numbers; text; or bytes, which are numbers already."""
    values: Iterable[Any] = map(attrgetter(column.name), rows)
    if dtype.kind == "S":
        texts = list(values)
        data = b"".join(each.encode().ljust(dtype.itemsize, b"\0") for each in texts) if any(texts) else b""
    elif column.widths != (1,):
        data = b"".join(values)
    else:
        if (none := column.none) is not None:
            values = (none if each is None else each for each in values)
        return np.fromiter(values, dtype.newbyteorder("="), len(rows))
    return numbers_of_bytes(column, dtype, data, len(rows))


def numbers_of_bytes(column: Column, dtype: np.dtype[Any], data: bytes, n: int) -> NDArray[Any]:
    """Return a column of a journal record with n rows: (n,), or (n, width). Raises ValueError."""
    if not data and column.omitted != "never":
        return np.full(n, column.none, dtype.newbyteorder("="))
    numbers = np.frombuffer(data, dtype)
    if not dtype.isnative:
        numbers = numbers.astype(dtype.newbyteorder("="))
    widths = column.widths
    width, rest = divmod(len(numbers), n) if n else (widths[0] if widths else 0, len(numbers))
    if rest or (width not in widths if widths else not width and n):
        raise ValueError(f"{column.name} has {len(data)} bytes, which do not fit {n} rows")
    return numbers if widths == (1,) else numbers.reshape(n, width)


def bytes_of(column: Column, dtype: np.dtype[Any], numbers: NDArray[Any]) -> bytes:
    """Encode a column for a journal record."""
    data = numbers.astype(dtype, copy=False).tobytes()
    if column.omitted != "never" and data == np.full(1, column.none, dtype).tobytes() * len(numbers):
        return b""
    return data


def refuse_unbounded(column: Column, most: float, numbers: NDArray[Any]) -> None:
    """Raise ValueError if a number of a column is out of its bounds."""
    beyond = numbers > most
    if column.least is not None:
        beyond |= numbers < column.least
    if not beyond.any():
        return
    if column.none is not None:
        beyond &= numbers != column.none
    if beyond.any():
        raise ValueError(f"{column.name} {numbers[beyond][0]}, not in {column.least or 0} to {most}")


def digests_in(data: bytes | NDArray[Any]) -> list[bytes]:
    """Cut a column of digests of URLs, or of hosts, into these."""
    digests: list[bytes] = np.frombuffer(data, _DIGEST).tolist()
    return digests

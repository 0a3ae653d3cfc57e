"""Rows as CSV (RFC 4180) for spreadsheets, in which no cell is a formula.

Hosts and URLs are chosen by crawled pages. A spreadsheet takes a cell that begins with certain characters for
a formula, which may read other cells and send them elsewhere; so such a cell gets an apostrophe in front.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Final

Cell = str | int | float | None
Rows = Iterable[Sequence[Cell]]

FORMULA: Final = tuple("=+-@\t\r\n|%\uff1d\uff0b\uff0d\uff20")
"""What begins a formula or a command in some spreadsheet, also in full width."""


def text_of(rows: Rows) -> str:
    """Return rows as CSV text. A header, if wanted, is the first of the rows."""
    written = io.StringIO()
    writer = csv.writer(written, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\r\n")
    writer.writerows([_cell(each) for each in row] for row in rows)
    return written.getvalue()


def _cell(value: Cell) -> Cell:
    if not isinstance(value, str):
        return "" if value is None else value
    # Unpaired surrogates, which JSON can hold and UTF-8 cannot, and NUL, at which some programs stop reading.
    value = value.encode(errors="replace").decode().replace("\0", "\ufffd")
    return f"'{value}" if value.lstrip().startswith(FORMULA) or value.startswith(FORMULA) else value

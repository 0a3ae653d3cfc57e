"""Rows of CSV in its dialects: commas, semicolons, tabs or bars between cells, quoted or not."""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from itertools import chain, count, islice
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from stream.errors import PageError
from stream.sources.source import MAX_MESSAGE

SAMPLE: Final = 100
"""Rows by which a suggestion is tried."""
_DELIMITERS: Final = ",;\t|"
_NAMED: Final = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)
"""A first line by which Excel is told the delimiter."""
_ESCAPED: Final = re.compile(r'(?<!\\)((?:\\\\)*)\\"')
"""A quotation mark behind a backslash that is none of a pair."""
_QUOTED: Final = re.compile(r'"[^"]*"')
_LONE_RETURN: Final = re.compile(r"\r(?!\n?\Z)")
"""A carriage return within a line, which the module csv would take for its end."""


class CsvRow(NamedTuple):
    """A row of a CSV file."""

    line: int
    """Number of its last line, from 1."""
    cells: list[str]
    stored: str
    """Its lines as they are in the file."""


class CsvRows:
    r"""The rows behind the header of a CSV file, whose delimiter the header tells: of those that give it most
    cells, the one that the file's name tells.

    Where tabs separate cells, most programs write quotation marks as they are. There, a cell is quoted only
    if its closing mark stands before a tab or a line end, and marks within it are doubled. Elsewhere, a row
    whose marks make no cells may have them escaped, `\"`, as Spark writes them, and a mark that is not closed
    takes the rest of the file: iterating raises PageError. So does a line that is longer than any message.
    """

    def __init__(self, text: TextIO, name: str) -> None:
        csv.field_size_limit(MAX_MESSAGE)
        self._name = name
        coming = _lines(text, name)
        before: list[str] = []
        first = next(coming, "")
        while first and not first.strip("\r\n"):
            before.append(first)
            first = next(coming, "")
        if named := _NAMED.fullmatch(first):
            before.append(first)
            first = next(coming, "")
        self._lines = chain([first], coming)
        self._line = len(before)
        self._taken: list[str] = []
        """Lines of the row that is being read."""
        self._ahead: deque[str] = deque()
        """Lines that come next, which were read in search of a closing mark."""
        self._unclosed = False
        self.delimiter = named[1] if named else _delimiter(first, name)
        self.all_rows: Iterator[CsvRow] = self._of_tabs() if self.delimiter == "\t" else self._of_others()
        """The rows, and the empty ones between them."""
        header = next(self.all_rows, CsvRow(0, [], ""))
        self.header = "".join([*before, header.stored])
        """All that stands before the rows, as it is in the file."""
        self.names = [each.strip() for each in header.cells]

    @cached_property
    def first(self) -> list[CsvRow]:
        """The first SAMPLE rows, which are then not iterated any more."""
        return list(islice(self, SAMPLE))

    def __iter__(self) -> Iterator[CsvRow]:
        return (row for row in self.all_rows if any(row.cells))

    def joined(self, cells: list[str], at: int) -> list[str]:
        """Return the cells of a row, of which it may have more than the header: empty ones at the end are
        none, and otherwise delimiters in the cell at `at`, which has free text, were not quoted."""
        surplus = len(cells) - len(self.names)
        while surplus > 0 and not cells[-1]:
            cells, surplus = cells[:-1], surplus - 1
        if surplus <= 0:
            return cells
        end = at + surplus + 1
        return [*cells[:at], self.delimiter.join(cells[at:end]), *cells[end:]]

    def _of_others(self) -> Iterator[CsvRow]:
        while True:
            try:
                for cells in csv.reader(self._next_lines(), delimiter=self.delimiter, strict=True):
                    yield self._row(cells)
            except csv.Error:
                yield self._odd_row()
            else:
                return

    def _odd_row(self) -> CsvRow:
        """Return the row that is being read, in which a mark stands where none can be: before it, others are
        escaped, or all are as they are written. Raises PageError and csv.Error."""
        if any('\\"' in line for line in self._taken):
            self._put_back()
            lines = (_ESCAPED.sub(r'\1""', line) for line in self._next_lines())
            with suppress(csv.Error):
                return self._row(next(csv.reader(lines, delimiter=self.delimiter, strict=True)))
        self._put_back()
        cells = next(csv.reader(self._next_lines(), delimiter=self.delimiter))
        if self._unclosed:
            begins = self._line - len(self._taken) + 1
            raise PageError(
                "damaged_source",
                f"{self._name} line {begins}: a quotation mark of the row that begins here is not closed",
            )
        return self._row(cells)

    def _next_lines(self) -> Iterator[str]:
        self._unclosed = False
        while (line := self._take()) is not None:
            yield _one_line(line)
        self._unclosed = bool(self._taken)  # the reader asks for more of a row

    def _put_back(self) -> None:
        self._line -= len(self._taken)
        self._ahead.extendleft(reversed(self._taken))
        self._taken.clear()

    def _of_tabs(self) -> Iterator[CsvRow]:
        while (line := self._take()) is not None:
            if '"' not in line:
                yield self._row(line.rstrip("\r\n").split("\t"))
                continue
            cells: list[str] = []
            place = 0
            while place <= len(line):
                if line.startswith('"', place) and (quoted := self._quoted(line, place)):
                    cell, line, end = quoted
                else:
                    end = line.find("\t", place)
                    end = len(line.rstrip("\r\n")) if end < 0 else end
                    cell = line[place:end]
                cells.append(cell)
                place = end + 1 if line.startswith("\t", end) else len(line) + 1
            yield self._row(cells)

    def _quoted(self, line: str, start: int) -> tuple[str, str, int] | None:
        """Return the cell whose opening mark is at `start`, its last line and its end in it, and take the
        lines that it spans; None if it is not quoted."""
        parts: list[str] = []
        place, size, lines = start + 1, 0, 0
        begins = place
        while True:
            mark = line.find('"', place)
            if mark < 0:
                parts.append(line[begins:])
                size += len(line)
                if lines == len(self._ahead) and (size > MAX_MESSAGE or not self._look_ahead()):
                    return None
                line, begins, place = self._ahead[lines], 0, 0
                lines += 1
            elif line.startswith('"', mark + 1):
                place = mark + 2
            elif line[mark + 1 : mark + 2] in ("\t", "\r", "\n", ""):
                parts.append(line[begins:mark])
                for _ in range(lines):
                    self._take()
                return "".join(parts).replace('""', '"'), line, mark + 1
            else:
                return None

    def _look_ahead(self) -> bool:
        if line := next(self._lines, ""):
            self._ahead.append(line)
        return bool(line)

    def _take(self) -> str | None:
        line = self._ahead.popleft() if self._ahead else next(self._lines, "")
        if not line:
            return None
        self._line += 1
        self._taken.append(line)
        return line

    def _row(self, cells: list[str]) -> CsvRow:
        stored = "".join(self._taken)
        self._taken.clear()
        return CsvRow(self._line, cells, stored)


def delimiter_of(path: str) -> str:
    """What separates the cells of a CSV file of this name, unless its header tells otherwise."""
    return "\t" if ".tsv" in Path(path).name.lower() else ","


def _lines(text: TextIO, name: str) -> Iterator[str]:
    """Yield lines with their ends. Raises PageError."""
    for number in count(1):
        line = text.readline(MAX_MESSAGE + 1)
        if len(line) > MAX_MESSAGE:
            raise PageError("damaged_source", f"{name} line {number}: over {MAX_MESSAGE} characters")
        if not line:
            return
        yield line


def _one_line(line: str) -> str:
    return _LONE_RETURN.sub(" ", line) if "\r" in line.rstrip("\r\n") else line


def _delimiter(header: str, name: str) -> str:
    return max(delimiter_of(name) + _DELIMITERS, key=_QUOTED.sub("", header).count)

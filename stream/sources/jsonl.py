"""JSON Lines: a page message per line, plain or compressed, from a file or standard input."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from itertools import chain
from typing import Final

import msgspec

from stream.errors import PageError, SettingsError
from stream.pages.columns import NO_COLUMNS, Columns, MissingColumns, json_fields
from stream.pages.members import DAMAGED
from stream.sources.compressed import decompressed
from stream.sources.encoding import Lines, utf8_lines
from stream.sources.file import FileSource
from stream.sources.source import MAX_MESSAGE, Message
from stream.text.lenient_json import decode


class _UrlOnly(msgspec.Struct):
    url: str | None = None


_Line = tuple[bytes, str]
"""A line and its place."""
LOOKED_AT: Final = 100
"""Most lines that are read before it is clear whether they have the columns of pages,"""
LOOKED_AT_BYTES: Final = 8 << 20
"""and about as many bytes."""
_END: Final = b"\r\n"
_LINE_ENDS: Final = (b"\r", b"\n")
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_URL: Final = msgspec.json.Decoder(_UrlOnly)


def url_of(value: bytes) -> str | None:
    """The `url` of a page message; None if it has none or is malformed."""
    try:
        return decode(_URL, value).url
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class JsonlSource(FileSource):
    """Yields lines unchanged, even malformed ones, and skips empty lines; with `columns`, the page messages
    that they stand for. A JSON array of objects is read as their lines would be, if it is not too large.

    Iterating raises SettingsError if the first LOOKED_AT lines lack a named column, or what pages need while
    they have a column of a usual name for it: that is a mistake of the user, rather than many pages to
    reject.
    """

    def __init__(self, path: str, columns: Columns = NO_COLUMNS) -> None:
        super().__init__(path)
        self.columns = columns

    def _read(self) -> Iterator[Message]:
        lines = self._refuse_other_columns(self.lines())
        if self.columns == NO_COLUMNS:
            for line, place in lines:
                value = line.rstrip(_END)
                yield Message(value, url_of(value), self.name, place)
        else:
            for number, (line, place) in enumerate(lines, 1):
                url = self.columns.url_of_place(self.name, number)
                value = line.rstrip(_END)
                yield Message(*self.columns.message(value, url), self.name, place, columns=self.columns)

    def _refuse_other_columns(self, lines: Iterator[_Line]) -> Iterator[_Line]:
        """Return the lines, once it is clear that the first ones are of pages."""
        first: list[_Line] = []
        missing = MissingColumns(self.columns)
        size = 0
        try:
            for line in lines:
                first.append(line)
                size += len(line[0])
                if (row := json_fields(line[0])) is not None:
                    missing.add(row)
                if not missing.any or len(first) == LOOKED_AT or size > LOOKED_AT_BYTES:
                    break
        except PageError as error:
            return chain(first, _damage(error))
        if message := missing.message():
            raise SettingsError(f"source {self.name}: {message}")
        return chain(first, lines)  # no generator: it would cost a tenth of the reading

    def lines(self) -> Iterator[_Line]:
        """Yield the line of each page as it is stored, or its item of an array, with its place.

               Text in UTF-16 or UTF-32 is in UTF-8 then, and a byte order mark is removed.
        Raises PageError for damage.
        """
        number, first = 0, b""
        with self._opened() as raw:
            try:
                lines = utf8_lines(decompressed(raw))
                while line := lines.readline(MAX_MESSAGE + 1):
                    number += 1
                    if number == 1:
                        line = line.removeprefix(codecs.BOM_UTF8)
                    if not first:
                        first = line.strip()
                        if first.startswith(b"["):
                            yield from self._array(line, lines, number)
                            return
                    elif first == b"{":
                        self._refuse_indented(line)
                        first = line
                    if len(line) > MAX_MESSAGE:
                        while line and not line.endswith(_LINE_ENDS):
                            line = lines.readline(MAX_MESSAGE)
                        wrong = f"{self.name} line {number}: over {MAX_MESSAGE} bytes"
                        self._note_damage(PageError("too_large", wrong))
                    elif line.rstrip(_END):
                        yield line, f"line {number}"
            except DAMAGED as error:
                raise PageError("damaged_source", f"{self.name} after line {number}: {error}") from error

    def _array(self, first: bytes, rest: Lines, number: int) -> Iterator[_Line]:
        """Yield the items of a JSON array that begins with line `number`, or the lines if it is none."""
        lines = [first]
        size = len(first)
        while size <= MAX_MESSAGE and (line := rest.readline(MAX_MESSAGE + 1)):
            lines.append(line)
            size += len(line)
        if size > MAX_MESSAGE:
            raise SettingsError(
                f"source {self.name}: a JSON array of over {MAX_MESSAGE >> 20} MiB; make lines of it first,"
                " `jq -c '.[]'`"
            )
        items = self._items(b"".join(lines))
        if items is None:
            for place, line in enumerate(lines, number):
                if line.rstrip(_END):
                    yield line, f"line {place}"
        else:
            for place, item in enumerate(items, 1):
                yield bytes(item), f"item {place}"

    def _items(self, text: bytes) -> list[msgspec.Raw] | None:
        """Return the items of a JSON array, or None if it is none."""
        try:
            return decode(_ITEMS, text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            detail = str(error)
        if "truncated" in detail:
            raise PageError("damaged_source", f"{self.name}: a JSON array that does not end")
        return None

    def _refuse_indented(self, second: bytes) -> None:
        """Raise SettingsError if the file goes on so after a line with a brace alone."""
        if second.lstrip().startswith(b'"'):
            raise SettingsError(
                f"source {self.name}: its JSON objects span lines; make lines of them first, `jq -c .`"
            )


def _damage(error: PageError) -> Iterator[_Line]:
    """Raise the error where a line is expected."""
    yield from ()
    raise error

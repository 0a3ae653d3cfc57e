"""The encodings of text files: UTF-8, and UTF-16 or UTF-32 as Windows programs write them."""

from __future__ import annotations

import codecs
import io
import re
from typing import Final, Protocol

from stream.errors import SettingsError

_BETWEEN_OBJECTS: Final = re.compile(r"\}[^\S\r]*+\r\s*+\{")
"""A carriage return that may end a line of JSON, in which others are white space."""
SAMPLE: Final = 1 << 16
"""Bytes from which the encoding of a table is told."""
_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins with that of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Lines(Protocol):
    """What lines are read from."""

    def readline(self, limit: int, /) -> bytes:
        """Return the next line with its end, at most `limit` bytes of it; none at the end of the file."""
        ...


class _Reencoded:
    """Lines of a text file in UTF-8."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text

    def readline(self, limit: int, /) -> bytes:
        return self._text.readline(limit).encode("utf-8", "surrogateescape")


def encoding_of(start: bytes) -> str:
    """The encoding of a file that begins so: by its mark, or by the zero byte beside an ASCII character that
    is first. Python's name; `utf-8-sig` unless it is another."""
    for mark, encoding in _MARKS:
        if start.startswith(mark):
            return encoding
    if start[1:2] == b"\0" and start[:1] not in (b"\0", b""):
        return "utf-16-le"
    if start[:1] == b"\0" and start[1:2] not in (b"\0", b""):
        return "utf-16-be"
    return "utf-8-sig"


def utf8_lines(file: io.BufferedReader) -> Lines:
    """The lines of a file in UTF-8, whose bytes may be no UTF-8, or in UTF-16 or UTF-32. They end at line
    feeds, or at carriage returns if there are none."""
    start = file.peek(SAMPLE)[:SAMPLE]
    encoding, errors = encoding_of(start), "replace"
    text = start.decode(encoding, "replace")
    newline = _newline(text) if _BETWEEN_OBJECTS.search(text) else "\n"
    if encoding == "utf-8-sig":
        if newline == "\n":
            return file
        encoding, errors = "utf-8", "surrogateescape"
    return _Reencoded(io.TextIOWrapper(file, encoding, errors, newline=newline))


def decoded(file: io.BufferedReader, name: str, errors: str = "replace") -> io.TextIOWrapper:
    """The text of a file in UTF-8, UTF-16 or UTF-32, whose lines end where its first one ends so: at a line
    feed, or at a carriage return if there is none. What cannot be decoded becomes U+FFFD, or in UTF-8 what
    `errors` says. Raises SettingsError if that would be most of what is not ASCII: the file has another
    encoding."""
    start = file.peek(SAMPLE)[:SAMPLE]
    encoding = encoding_of(start)
    text = codecs.getincrementaldecoder(encoding)("replace").decode(start)
    if encoding == "utf-8-sig":
        bad = text.count("\ufffd")
        if bad > sum(character > "\x7f" for character in text) - bad:
            raise SettingsError(
                f"source {name}: not UTF-8; Latin-1 or Windows-1252, perhaps: convert it first,"
                " `iconv -f WINDOWS-1252 -t UTF-8`"
            )
    else:
        errors = "replace"
    return io.TextIOWrapper(file, encoding, errors, newline=_newline(text))


def _newline(start: str) -> str:
    return "\r" if "\r" in start and "\n" not in start else "\n"

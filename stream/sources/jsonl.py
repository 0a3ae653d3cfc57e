"""JSON Lines: a page message per line, plain or compressed, from a file or standard input."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

import msgspec

from stream.errors import PageError
from stream.sources.compressed import DAMAGED, decompressed
from stream.sources.file import FileSource
from stream.sources.source import MAX_MESSAGE, Message


class _UrlOnly(msgspec.Struct):
    url: str | None = None


_URL = msgspec.json.Decoder(_UrlOnly)


def url_of(value: bytes) -> str | None:
    """The `url` of a page message; None if it has none or is malformed."""
    try:
        return _URL.decode(value).url
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class JsonlSource(FileSource):
    """Yields lines unchanged, even malformed ones, and skips empty lines."""

    def _read(self) -> Iterator[Message]:
        number = 0
        with self._opened() as raw:
            try:
                lines = decompressed(raw)
                while line := lines.readline(MAX_MESSAGE + 1):
                    number += 1
                    if len(line) > MAX_MESSAGE:
                        raise PageError("too_large", f"{self.name} line {number}: over {MAX_MESSAGE} bytes")
                    if number == 1:
                        line = line.removeprefix(codecs.BOM_UTF8)
                    if value := line.rstrip(b"\r\n"):
                        yield Message(value, url_of(value), self.name, f"line {number}")
            except DAMAGED as error:
                raise PageError("damaged_source", f"{self.name} after line {number}: {error}") from error

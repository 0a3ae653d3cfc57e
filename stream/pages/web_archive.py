"""Reads the records of web archives (WARC), plain or compressed.

A record costs itself, never what follows it: what cannot be read of a record is yielded as damage, and
reading goes on with the next record. Line ends may be LF alone, and fields may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from stream.pages.headers import END, MAX_HEADERS, header_fields
from stream.pages.http_response import STATUS_LINE, HttpResponse, http_response
from stream.pages.members import DAMAGED, Members

_VERSION: Final = re.compile(rb"WARC/\d+(?:\.\d+)?[ \t]*\r?\n", re.IGNORECASE)
_END: Final = re.compile(END.pattern + rb"|(?=" + _VERSION.pattern + rb")", re.IGNORECASE)
"""The end of a header, or where another one begins before it, in linear time."""
_USUAL: Final = 1024
"""Bytes of a header whose end is searched for alone, which is faster."""
_BEGINNING: Final = b"WARC/"
_LONGEST_VERSION: Final = 32
_LONGEST_NUMBER: Final = 19
_GAP: Final = re.compile(rb"[\r\n\0 \t]+")
"""What is skipped between records."""
_REREAD: Final = 50
"""Most times that as much is gone back to as was read: content that shows very many records within one
another costs no more."""


@dataclass
class ArchiveRecord:
    """A record of a web archive."""

    member: int
    """Where in the file it begins, or the member of the file that has it,"""
    within: int
    """and where it begins in the content of that member."""
    header: bytes
    """The lines of its header, with the empty one behind them."""
    fields: dict[str, str]
    """Header fields by names in lower case."""
    length: int
    """Bytes of the content."""
    content: bytes
    """The first MAX_HEADERS bytes if it is too large to be kept."""
    gap: bytes = b""
    """The empty lines behind it, the first MAX_HEADERS bytes."""

    @property
    def place(self) -> str:
        """Names it within the archive, such as `record at byte 81920`."""
        return _place(self.member, self.within)

    @property
    def is_whole(self) -> bool:
        """Whether all of the content is kept."""
        return len(self.content) == self.length

    @property
    def kind(self) -> str:
        """The type of the record, such as `response`."""
        return self.fields.get("warc-type", "").lower()

    @cached_property
    def http(self) -> HttpResponse | None:
        """The HTTP response of a record with one."""
        if self.kind != "response":
            return None
        declared = self.fields.get("content-type", "").lower()
        if declared.startswith("application/http") or STATUS_LINE.match(self.content):
            return http_response(self.content)
        return None


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """A record, or bytes between records, that could not be read."""

    member: int
    within: int
    error: str

    @property
    def place(self) -> str:
        """Names where in the archive it is."""
        return _place(self.member, self.within)


class RecordError(Exception):
    """A record cannot be read."""


class ArchiveReader:
    """Iterates over the records of an archive, and over damage."""

    def __init__(self, members: Members, most: int) -> None:
        """Of content of more than `most` bytes only the beginning is kept."""
        self._members = members
        self._most = most
        self._data = b""
        self._at = 0
        self._offset = 0
        """Where `_data` begins in the content of the archive."""
        self._read = self._reread = 0
        """Bytes that were read, and that were gone back to."""
        self._error: BaseException | None = None
        """The damage at the end of `_data`."""

    def __iter__(self) -> Iterator[ArchiveRecord | DamagedRecord]:
        self._skip_gap()
        while self._at < len(self._data) or self._error is not None:
            member, within = self._members.place(self._offset + self._at)
            try:
                record = self.read()
                record.gap = self._skip_gap()
                self._refuse_wrong_length(record)
            except RecordError as error:
                yield DamagedRecord(member, within, str(error))
                if not self._find_record():
                    return
            else:
                yield record

    def read(self) -> ArchiveRecord:
        """Return the record that begins here. Raises RecordError."""
        member, within = self._members.place(self._offset + self._at)
        header = self._header()
        fields = header_fields(header.partition(b"\n")[2])
        size = fields.get("content-length", "")
        if not (size.isascii() and size.isdigit() and len(size) < _LONGEST_NUMBER):
            raise RecordError(f"Content-Length {size[:40]!r}" if size else "no Content-Length")
        length = int(size)
        kept = length if length <= self._most else min(length, MAX_HEADERS)
        content = self._take(kept)
        missing = length - len(content)
        if len(content) == kept:
            missing = self._skip(missing)
        if missing:
            if length <= self._most:
                self._go_back_to_record(content)
            raise RecordError(self._why(f"truncated after {length - missing} of {length} bytes"))
        return ArchiveRecord(member, within, header, fields, length, content)

    def _header(self) -> bytes:
        """Take the header of a record. Raises RecordError a byte behind where it begins, if not later."""
        while len(self._data) - self._at < len(_BEGINNING) and self._fill():
            pass
        if self._data[self._at : self._at + len(_BEGINNING)].upper() != _BEGINNING:
            self._at += 1
            raise RecordError(self._why("no WARC record begins there"))
        while (end := self._end_of_header()) is None:
            too_long = len(self._data) - self._at > MAX_HEADERS
            if too_long or not self._fill():
                self._at += 1
                raise RecordError(
                    "its header does not end" if too_long else self._why("truncated in its header")
                )
        header = self._data[self._at : end.end()]
        inner = _VERSION.search(header, 1) if header.upper().rfind(_BEGINNING) else None
        self._at += inner.start() if inner else len(header)
        if inner or not end[0]:
            raise RecordError("truncated in its header")
        return header

    def _end_of_header(self) -> re.Match[bytes] | None:
        """Return the end of the header that begins here, or the beginning of another one before that, which
        is empty. Returns None if neither was read yet."""
        usual = END.search(self._data, self._at, self._at + _USUAL)
        return usual or _END.search(self._data, self._at + 1, self._at + MAX_HEADERS)

    def _refuse_wrong_length(self, record: ArchiveRecord) -> None:
        """Raise RecordError if the content has the beginning of another record, and none begins behind it."""
        if self._data[self._at : self._at + len(_BEGINNING)].upper() in (_BEGINNING, b""):
            return
        if record.is_whole and self._go_back_to_record(record.content + record.gap):
            raise RecordError("another record begins in its content")

    def _go_back_to_record(self, content: bytes) -> bool:
        """Go back to a record that begins in content that was taken last. Returns whether there is one."""
        while len(self._data) - self._at < _LONGEST_VERSION and self._fill():
            pass
        inner = _VERSION.search(content + self._data[self._at : self._at + _LONGEST_VERSION])
        if inner is None or inner.start() >= len(content) or self._reread > _REREAD * self._read:
            return False
        back = content[inner.start() :]
        self._reread += len(back)
        self._offset += self._at - len(back)
        self._data, self._at = back + self._data[self._at :], 0
        return True

    def _find_record(self) -> bool:
        """Go to the next record, behind damage. Returns False if there is none."""
        while not (version := _VERSION.search(self._data, self._at)):
            self._at = max(self._at, len(self._data) - _LONGEST_VERSION)
            if self._fill():
                continue
            if self._error is None or (offset := self._members.skip_damage(_BEGINNING)) is None:
                return False
            self._data, self._at, self._offset, self._error = b"", 0, offset, None
        self._at = version.start()
        return True

    def _skip_gap(self) -> bytes:
        """Skip the empty lines between records, and return the first MAX_HEADERS bytes of them."""
        gap = b""
        while True:
            if blank := _GAP.match(self._data, self._at):
                gap += blank[0][: MAX_HEADERS - len(gap)]
                self._at = blank.end()
            # A record begins there once there are enough bytes to tell.
            if len(self._data) - self._at >= len(_BEGINNING) or not self._fill():
                return gap

    def _why(self, otherwise: str) -> str:
        return str(self._error) if self._error is not None else otherwise

    def _take(self, size: int) -> bytes:
        """Take so many bytes, or up to the end or damage."""
        data = self._data[self._at : self._at + size]
        self._at += len(data)
        if len(data) == size:
            return data
        parts = [data]
        size -= len(data)
        while size and self._fill() and not self._begins_member():
            parts.append(self._data[self._at : self._at + size])
            self._at += len(parts[-1])
            size -= len(parts[-1])
        return b"".join(parts)

    def _skip(self, size: int) -> int:
        """Skip so many bytes, or up to the end or damage. Returns how many are missing."""
        while size:
            part = min(size, len(self._data) - self._at)
            self._at += part
            size -= part
            if size and (not self._fill() or self._begins_member()):
                break
        return size

    def _begins_member(self) -> bool:
        """Whether a member was begun that begins with a record: what was to be taken ended before it."""
        return self._members.kind is not None and bool(_VERSION.match(self._data))

    def _fill(self) -> bool:
        """Read on. Returns False at the end or at damage."""
        if self._error is not None:
            return False
        try:
            block = self._members.block()
        except DAMAGED as error:
            self._error = error
            return False
        self._read += len(block)
        self._offset += self._at
        self._data, self._at = self._data[self._at :] + block, 0
        return bool(block)


def _place(member: int, within: int) -> str:
    return f"record at byte {member}+{within}" if within else f"record at byte {member}"

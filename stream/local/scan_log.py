"""The log of a scan with an index: verdicts that its output does not have yet."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from stream.errors import DamagedStateError
from stream.local.index import VERDICT_LOG, Index, RowsId
from stream.messages.verdict import VerdictRecord
from stream.output import writing
from stream.private import tighten

CHUNK: Final = 16_384
"""Verdicts that are read at once."""


class Header(msgspec.Struct, frozen=True):
    """The first line of a log."""

    output: str
    first: int
    """Number of the page of the first verdict."""
    batch: str
    """`Index.last_batch` before that page."""
    position: int | None
    """Position of the output then, if it is a table that had one."""


class BatchHead(msgspec.Struct, frozen=True):
    """The line before the verdicts of a batch."""

    batch: str
    """`Index.last_batch` once the index has it."""
    verdicts: int


class VerdictLog:
    """The log of an open index. Pages are numbered from 0 on, in the order in which the index got them."""

    def __init__(self, directory: Path, index: Index) -> None:
        """Find what an interrupted scan left, without changing it.

        Raises DamagedStateError, also if the index has got other pages than those of the verdicts.
        """
        self.path: Final = directory / VERDICT_LOG
        self.header: Header | None = None
        """None if there is no log."""
        self.end = len(index)
        """Number of the page after that of the last verdict."""
        self._index = index
        self._bytes = 0
        self._file: BinaryIO | None = None
        self._reader: BinaryIO | None = None
        self._unread = 0
        """Verdicts of the current batch that are not read yet."""
        if self.path.exists():
            try:
                self._find()
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise self._damaged(error) from error

    @property
    def first(self) -> int:
        """Number of the page of the first verdict."""
        return self.header.first if self.header else self.end

    def count(self, rows: RowsId) -> int:
        """Return the number of verdicts on some rows. Raises DamagedStateError."""
        return sum(record.source.topic_id == rows.digest for record in map(self.decode, self._all()))

    def resume(self) -> None:
        """Drop the verdicts on pages that the index does not have, and append behind the others."""
        self._file = self.path.open("r+b")
        self._file.truncate(self._bytes)
        self._file.seek(self._bytes)
        self._rewind()

    def begin(self, output: str, position: int | None) -> None:
        """Begin anew, for an output that needs no verdict on the pages that the index has. `position` is that
        of a table."""
        self.close()
        self.header = Header(output, len(self._index), self._index.last_batch, position)
        self.end = self.header.first
        with writing(self.path) as file:
            file.write(msgspec.json.encode(self.header) + b"\n")
        tighten(self.path)
        self._file = self.path.open("ab")
        self._rewind()

    def append(self, batch: str, values: Sequence[bytes]) -> None:
        """Make the verdicts of a batch, in JSON, durable."""
        if self._file is None:
            raise RuntimeError("the log has not begun")
        head = msgspec.json.encode(BatchHead(batch, len(values)))
        self._file.write(b"".join(line + b"\n" for line in (head, *values)))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.end += len(values)

    def read(self, most: int = CHUNK) -> list[bytes]:
        """Return the next verdicts, at most so many; none at the end."""
        values: list[bytes] = []
        while self._reader and len(values) < most:
            if not self._unread and (line := self._reader.readline()):
                self._unread = _BATCH_HEAD(line).verdicts
            if not self._unread:
                break
            some = min(self._unread, most - len(values))
            values += (line[:-1] for line in islice(iter(self._reader.readline, b""), some))
            self._unread -= some
        return values

    def decode(self, value: bytes) -> VerdictRecord:
        """Return a verdict of this log. Raises DamagedStateError."""
        try:
            return _VERDICT(value)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._damaged(error) from error

    def close(self) -> None:
        """Release the log."""
        for file in (self._file, self._reader):
            if file:
                file.close()
        self._file = self._reader = None

    def remove(self) -> None:
        """Remove the log: no output lacks its verdicts."""
        self.close()
        self.path.unlink(missing_ok=True)

    def _find(self) -> None:
        with self.path.open("rb") as file:
            self.header = _HEADER(file.readline())
            number, batch = self.header.first, self.header.batch
            while number < self.end and (line := file.readline()):
                head = _BATCH_HEAD(line)
                if sum(each.endswith(b"\n") for each in islice(file, head.verdicts)) < head.verdicts:
                    break  # the index cannot have this batch
                number, batch = number + head.verdicts, head.batch
            self._bytes = file.tell()
        if (number, batch) != (self.end, self._index.last_batch):
            raise self._damaged(
                f"its verdicts on pages {self.header.first} to {number} are not those of the index, which has"
                f" {self.end} pages"
            )

    def _all(self) -> Iterator[bytes]:
        if self.header is None:
            return
        self._rewind()
        while values := self.read():
            yield from values

    def _rewind(self) -> None:
        if self._reader:
            self._reader.close()
        self._reader = self.path.open("rb")
        self._reader.readline()
        self._unread = 0

    def _damaged(self, what: object) -> DamagedStateError:
        output = f", which {self.header.output} then lacks" if self.header else ""
        return DamagedStateError(
            f"{self.path}: damaged: {what}; bring back the index and its log of one moment, or remove the log"
            f" to go on without its verdicts{output}"
        )


_HEADER: Final = msgspec.json.Decoder(Header).decode
_BATCH_HEAD: Final = msgspec.json.Decoder(BatchHead).decode
_VERDICT: Final = msgspec.json.Decoder(VerdictRecord).decode

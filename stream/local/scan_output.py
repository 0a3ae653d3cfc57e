"""The verdicts of a scan, each exactly once in its output, also when a scan with an index is killed.

An index has no journal: what it has judged, it does not judge again. So the verdicts of a batch are made
durable in a log beside the index before the batch is stored, and stay there until the output has them.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import msgspec

from stream import failpoints
from stream.errors import DamagedStateError, OutputError, SettingsError
from stream.local.index import Index
from stream.messages.verdict import VerdictRecord
from stream.output import STDOUT, Output, if_interrupted, writing
from stream.private import tighten
from stream.sinks.base import Sink
from stream.sinks.open import open_sink

LOG: Final = "verdicts.log"
CHECKPOINT: Final = 1_000_000
"""Verdicts after which the output is made durable and the log begins anew."""
ROWS: Final = 16_384
"""Verdicts that a table is given at once."""
TABLES: Final = (".parquet", ".duckdb")
"""Suffixes of outputs that are tables, to which later scans add; others are JSON Lines."""


class Header(msgspec.Struct, frozen=True):
    """The first line of a log."""

    output: str
    first: int
    """Number, among all pages of the index, of the page of the first verdict."""


class Verdicts(Protocol):
    """An output of verdicts."""

    def log(self, values: Sequence[bytes]) -> None:
        """Make the verdicts of a batch, in JSON, durable before the index stores it."""
        ...

    def write(self, values: Sequence[bytes], records: Sequence[VerdictRecord]) -> None:
        """Write verdicts, in JSON and decoded, after the index has stored their batch."""
        ...


class NoVerdicts:
    """Verdicts that are only counted."""

    def log(self, values: Sequence[bytes]) -> None:
        """See `Verdicts`."""

    def write(self, values: Sequence[bytes], records: Sequence[VerdictRecord]) -> None:
        """See `Verdicts`."""


class _Lines:
    """A JSON Lines file, which appears when it is complete."""

    next: int | None = None

    def __init__(self, file: Output) -> None:
        self._file = file

    def append(self, values: Sequence[bytes], records: Sequence[VerdictRecord], end: int) -> None:
        self._file.write(b"".join(value + b"\n" for value in values))
        self._file.flush()  # the reader of a pipe waits for it; Python 3.14 would buffer 128 KiB

    def flush(self) -> bool:
        return False


class _Table:
    """A table, which also has the number of pages of the index whose verdicts it has."""

    def __init__(self, sink: Sink, journal: str) -> None:
        self._sink, self._journal = sink, journal
        self.next = sink.offsets(journal).get(0)
        self._rows: list[VerdictRecord] = []
        self._end = 0

    def append(self, values: Sequence[bytes], records: Sequence[VerdictRecord], end: int) -> None:
        self._rows += records
        self._end = end
        if len(self._rows) >= ROWS:
            self._hand_over()

    def flush(self) -> bool:
        self._hand_over()
        self._sink.flush()
        return True

    def _hand_over(self) -> None:
        if self._rows:
            self._sink.append(self._rows, self._journal, {0: self._end})
            self._rows = []


class _Written:
    """Writes verdicts once each to lines or a table, with a log if the index outlives the scan."""

    def __init__(self, target: _Lines | _Table, index: Index, log: _Log | None) -> None:
        self._target, self._index, self._log = target, index, log
        count = len(index)
        self._at = count
        """Number of the next page to be judged."""
        self._next = count if target.next is None else target.next
        """Number of the next page whose verdict the output lacks."""
        self._checkpoint = self._at + CHECKPOINT
        if log and log.values:
            first = log.first
            if target.next is not None and target.next < first:
                raise SettingsError(
                    f"output {log.output}: lacks verdicts that it had, it ends at page {target.next} of the"
                    f" index, not {first}"
                )
            self._at = first if target.next is None else max(first, min(target.next, count))
            self._next = max(self._at, target.next or 0)
            values = log.values[self._at - first :]
            self.write(values, log.decoded(values))
        if log and not (log.values and isinstance(target, _Lines)):
            target.flush()
            log.begin(self._at)

    def log(self, values: Sequence[bytes]) -> None:
        if self._log:
            self._log.append(values)
            failpoints.reach("scan.logged")

    def write(self, values: Sequence[bytes], records: Sequence[VerdictRecord]) -> None:
        failpoints.reach("scan.applied")
        had = min(len(values), max(0, self._next - self._at))
        self._at += len(values)
        if had < len(values):
            self._next = self._at
            self._target.append(values[had:], records[had:], self._at)
        if self._log and self._at >= self._checkpoint and self._target.flush():
            failpoints.reach("scan.flushed")
            self._index.flush()  # what the log no longer has need not be judged again
            self._log.begin(self._at)
            self._checkpoint = self._at + CHECKPOINT


class _Log:
    """The log of an index: verdicts that are durable before the index has their pages."""

    def __init__(self, path: Path, output: str, count: int) -> None:
        """Read the log that an interrupted scan left. Raises SettingsError and DamagedStateError."""
        self.output = output
        self._path = path
        self._file: BinaryIO | None = None
        self.found = path.exists()
        self.first = count
        self.values: list[bytes] = []
        """Verdicts of pages that the index has, from page `first` on."""
        if self.found:
            self.first, self.values = _read(path, output, count)
            self._file = path.open("r+b")
            self._file.seek(sum(len(value) + 1 for value in self.values) + self._header_size())
            self._file.truncate()

    def _header_size(self) -> int:
        with self._path.open("rb") as file:
            return len(file.readline())

    def decoded(self, values: Sequence[bytes]) -> list[VerdictRecord]:
        """Verdicts of this log. Raises DamagedStateError."""
        try:
            return [_DECODE(value) for value in values]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DamagedStateError(f"{self._path}: damaged: {error}") from error

    def begin(self, first: int) -> None:
        """Begin anew at page `first`, since the output has what came before."""
        self.close()
        with writing(self._path) as file:
            file.write(msgspec.json.encode(Header(self.output, first)) + b"\n")
        tighten(self._path)
        self.first, self.values = first, []
        self._file = self._path.open("ab")

    def append(self, values: Sequence[bytes]) -> None:
        if self._file is None:
            raise RuntimeError("the log has not begun")
        self._file.write(b"".join(value + b"\n" for value in values))
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file:
            self._file.close()
            self._file = None

    def remove(self) -> None:
        self.close()
        self._path.unlink(missing_ok=True)


def _read(path: Path, output: str, count: int) -> tuple[int, list[bytes]]:
    header, *lines = path.read_bytes().split(b"\n")
    try:
        found = msgspec.json.decode(header, type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedStateError(f"{path}: damaged: {error}") from error
    if found.output != output:
        raise SettingsError(
            f"{path}: has verdicts of an interrupted scan that {found.output} lacks; run it again with"
            f" -o {found.output}"
        )
    if not found.first <= count <= found.first + len(lines) - 1:  # the last is empty, or was cut off
        raise DamagedStateError(
            f"{path}: damaged, has {len(lines) - 1} verdicts from page {found.first} of the index on, which"
            f" has {count} pages"
        )
    return found.first, lines[: count - found.first]


@contextmanager
def verdicts_to(
    output: Path | None, index: Index, directory: Path | None, begun: str | None = None
) -> Iterator[Verdicts]:
    """Open the output of a scan: JSON Lines, or a table if its suffix says so. `directory` is that of an
    index that outlives the scan; verdicts of an interrupted scan that are in its log are written first.
    `begun` names a source that the index has judged in part.

    Raises SettingsError, ExportError and OutputError.
    """
    left = directory / LOG if directory else None
    if output is None:
        if left and left.exists():
            _read(left, "nothing", len(index))
        yield NoVerdicts()
        return
    log = _Log(left, _absolute(output), len(index)) if left else None
    try:
        if output.suffix in TABLES:
            with _table(output, whole=left is None) as target, open_sink(str(target)) as sink:
                _refuse_verdicts_of_others(output, sink, index)
                table = _Table(sink, index.journal)
                _refuse_beginning(output, log, begun, len(index) - (table.next or 0))
                yield _Written(table, index, log)
                table.flush()
        else:
            _refuse_beginning(output, log, begun, len(index))
            with writing(output) as file:
                yield _Written(_Lines(file), index, log)
        if log:
            failpoints.reach("scan.closed")
            index.flush()
            failpoints.reach("scan.kept")
            log.remove()
    finally:
        if log:
            log.close()


def _absolute(output: Path) -> str:
    return str(output) if str(output) == STDOUT else str(output.resolve())


@contextmanager
def _table(output: Path, *, whole: bool) -> Iterator[Path]:
    """Where to write a table. If it has to appear `whole`, for no later scan can complete it, a new one is
    written beside `output` and renamed."""
    if not whole or (output.exists() and not _empty(output)):
        yield output
        return
    part = output.with_name(f".neardup-{secrets.token_hex(8)}.part{output.suffix}")
    try:
        with if_interrupted(lambda: f"{output} is unchanged"):
            yield part
        try:
            part.replace(output)
        except OSError as error:
            raise OutputError(f"{output}: {error.strerror}") from error
    finally:
        if part.is_dir():
            shutil.rmtree(part)
        part.unlink(missing_ok=True)
        part.with_name(f"{part.name}.wal").unlink(missing_ok=True)  # of DuckDB


def _empty(output: Path) -> bool:
    return output.is_dir() and not any(output.iterdir())


def _refuse_beginning(output: Path, log: _Log | None, begun: str | None, lacks: int) -> None:
    """Raise SettingsError for an output that lacks the verdicts on the beginning of a source."""
    if begun and log and not log.found and lacks > 0:
        raise SettingsError(
            f"output {output}: would lack the first verdicts of {begun}, which an interrupted scan of this"
            " index gave; scan without -o, or with a new index"
        )


def _refuse_verdicts_of_others(output: Path, sink: Sink, index: Index) -> None:
    """Raise SettingsError for a table that has verdicts, but none of this index."""
    if sink.topics() and index.journal not in sink.topics():
        raise SettingsError(
            f"output {output}: has verdicts of another index; name a new one, or with --index the index that"
            " they are of"
        )


_DECODE = msgspec.json.Decoder(VerdictRecord).decode

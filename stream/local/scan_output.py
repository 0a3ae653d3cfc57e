"""The verdicts of a scan, each exactly once in its output, even if a scan with an index is killed.

An index has no journal: pages that it has judged are not judged again, and pages that it had not flushed when
it was killed are lost, so that their ids are given to other pages. So a verdict is written to the output
only once its page is durable in the index. Until then it is in a log beside the index: the verdicts of a
batch are durable there before the batch is stored, and stay until they are durable in the output.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from stream import failpoints
from stream.errors import OutputError, SettingsError
from stream.local.index import Index, RowsId
from stream.local.scan import ScannedBatch
from stream.local.scan_log import CHUNK, VerdictLog
from stream.messages.verdict import VerdictRecord
from stream.output import STDOUT, Output, if_interrupted, writing
from stream.sinks.base import COLUMNS, Sink, values_of
from stream.sinks.csv_text import text_of
from stream.sinks.open import open_sink

CHECKPOINT: Final = 1_000_000
"""Verdicts after which the index and the output are made durable, and the log begins anew."""
ROWS: Final = 16_384
"""Verdicts that a table is given at once."""
TABLES: Final = (".parquet", ".duckdb")
"""Suffixes of outputs that are tables, to which later scans add; CSV and JSON Lines are written anew."""
CSV: Final = ".csv"
_OTHERS: Final = (
    ".tsv",
    ".xlsx",
    ".gz",
    ".bz2",
    ".xz",
    ".zst",
    ".zip",
    ".db",
    ".ddb",
    ".sqlite",
    ".arrow",
    ".feather",
    ".pq",
)
"""Suffixes of formats that are not written: who names one would take JSON Lines for a damaged file."""


class BegunRows(NamedTuple):
    """Rows that an index has judged in part."""

    name: str
    id: RowsId
    judged: int


class VerdictOutput(Protocol):
    """An output of verdicts."""

    def log(self, scanned: ScannedBatch) -> list[bytes]:
        """Return the verdicts of a batch in JSON, durable before the index stores it."""
        ...

    def write(self, values: Sequence[bytes], records: Sequence[VerdictRecord]) -> None:
        """Write verdicts, in JSON and decoded, after the index has stored their batch."""
        ...


class NoVerdicts:
    """Verdicts that are only counted."""

    def log(self, scanned: ScannedBatch) -> list[bytes]:
        return scanned.json()

    def write(self, values: Sequence[bytes], records: Sequence[VerdictRecord]) -> None:
        pass


class _Lines:
    """A JSON Lines file, which appears when it is complete, or a stream."""

    position: int | None = None

    def __init__(self, file: Output) -> None:
        self._file = file
        self.prompt = file.direct
        """Whether a reader may wait for each verdict."""

    def append(self, values: Sequence[bytes], records: Sequence[VerdictRecord], end: int) -> None:
        self._file.write(b"".join(value + b"\n" for value in values))
        self._file.flush()  # the reader of a pipe waits for it; Python 3.14 would buffer 128 KiB

    def flush(self) -> bool:
        return False


class _Csv(_Lines):
    """A CSV file with the columns of a table of verdicts."""

    def __init__(self, file: Output) -> None:
        super().__init__(file)
        self._file.write(text_of([tuple(COLUMNS)]).encode())

    def append(self, values: Sequence[bytes], records: Sequence[VerdictRecord], end: int) -> None:
        rows = (
            [each.isoformat() if isinstance(each, datetime) else each for each in values_of(record)]
            for record in records
        )
        self._file.write(text_of(rows).encode())
        self._file.flush()


class _Table:
    """A table, which also has the number of pages of the index whose verdicts it has."""

    prompt = False

    def __init__(self, sink: Sink, journal: str) -> None:
        self._sink, self._journal = sink, journal
        self.position = sink.offsets(journal).get(0)
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


class _Direct(NoVerdicts):
    """Writes the verdicts of an index that is removed at the end of the scan."""

    def __init__(self, target: _Lines | _Table) -> None:
        self._target = target
        self._end = 0

    def write(self, values: Sequence[bytes], records: Sequence[VerdictRecord]) -> None:
        self._end += len(values)
        self._target.append(values, records, self._end)

    def finish(self) -> None:
        """Complete the output."""
        self._target.flush()


class _Logged:
    """Writes the verdicts of an index that outlives the scan, from its log."""

    def __init__(self, target: _Lines | _Table, index: Index, log: VerdictLog, output: str) -> None:
        self._target, self._index, self._log, self._output = target, index, log, output
        self._next = log.first
        """Number of the page of the next verdict that is read from the log."""
        self._checkpoint = log.end + CHECKPOINT
        self._log_is_ours = log.header is not None and log.header.output == output
        if not self._log_is_ours:
            return
        log.resume()
        while (had := (target.position or 0) - self._next) > 0:
            self._next += len(log.read(min(had, CHUNK)))
        self.finish()

    def log(self, scanned: ScannedBatch) -> list[bytes]:
        values = scanned.json()
        if not self._log_is_ours:
            self._log.begin(self._output, self._target.position)
            self._log_is_ours = True
        self._log.append(scanned.decided.entries[-1].digest.hex(), values)
        failpoints.reach("scan.logged")
        return values

    def write(self, values: Sequence[bytes], records: Sequence[VerdictRecord]) -> None:
        failpoints.reach("scan.applied")
        if self._target.prompt or self._log.end >= self._checkpoint:
            self.finish()

    def finish(self) -> None:
        """Write what the log has."""
        if self._log.first == self._log.end:
            return
        self._index.flush()
        failpoints.reach("scan.flushed")
        while values := self._log.read():
            self._next += len(values)
            self._target.append(values, list(map(self._log.decode, values)), self._next)
        durable = self._target.flush()
        failpoints.reach("scan.written")
        if durable:
            self._log.begin(self._output, self._next)
        self._checkpoint = self._log.end + CHECKPOINT


@contextmanager
def verdicts_to(
    output: Path | None, index: Index, directory: Path | None, begun: Sequence[BegunRows] = ()
) -> Iterator[VerdictOutput]:
    """Open the output of a scan: JSON Lines, or CSV or a table if its suffix says so. `directory` is that of
    an index that outlives the scan; verdicts of an interrupted scan that are in its log are written first.

    Raises SettingsError, ExportError, OutputError and DamagedStateError.
    """
    log = VerdictLog(directory, index) if directory else None
    if log:
        _refuse_lost_verdicts(log, output)
    if output is None:
        if log:
            log.remove()
        yield NoVerdicts()
        return
    suffix = output.suffix.lower()
    if suffix in _OTHERS or (suffix in TABLES) != (output.suffix in TABLES):
        raise SettingsError(
            f"output {output}: verdicts are not written as {output.suffix}; name a file NAME.jsonl or"
            " NAME.csv, a directory NAME.parquet, or NAME.duckdb"
        )
    try:
        if log and not output.exists():
            _refuse_other_position(output, None, log)
            _refuse_beginning(output, None, log, begun)
        if output.suffix in TABLES:
            with _table(output, whole=log is None) as target, open_sink(str(target)) as sink:
                _refuse_verdicts_of_others(output, sink, index)
                table = _Table(sink, index.journal)
                with _writer(table, index, log, output, begun) as writer:
                    yield writer
        else:
            kind = _Csv if suffix == CSV else _Lines
            with writing(output) as file, _writer(kind(file), index, log, output, begun) as writer:
                yield writer
        failpoints.reach("scan.closed")
        if log:
            log.remove()
    finally:
        if log:
            log.close()


@contextmanager
def _writer(
    target: _Lines | _Table,
    index: Index,
    log: VerdictLog | None,
    output: Path,
    begun: Sequence[BegunRows],
) -> Iterator[VerdictOutput]:
    writer: _Direct | _Logged
    if log is None:
        writer = _Direct(target)
    else:
        _refuse_other_position(output, target.position, log)
        _refuse_beginning(output, target.position, log, begun)
        writer = _Logged(target, index, log, _absolute(output))
    yield writer
    writer.finish()


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


def _refuse_lost_verdicts(log: VerdictLog, output: Path | None) -> None:
    """Raise SettingsError if the log has verdicts of another output."""
    if log.header and log.first < log.end and (output is None or log.header.output != _absolute(output)):
        raise SettingsError(
            f"{log.path}: has verdicts of an interrupted scan that {log.header.output} lacks; run it again"
            f" with -o {log.header.output}, or remove the log to go on without them"
        )


def _refuse_other_position(output: Path, position: int | None, log: VerdictLog) -> None:
    """Raise SettingsError for a table that is not the one that the index and its log go on with."""
    header = log.header
    if position is not None and position > log.end:
        raise SettingsError(
            f"output {output}: has verdicts on {position} pages of the index, which has {log.end}; bring back"
            " the index that it is of, or name a new output"
        )
    if not header or header.output != _absolute(output) or position == header.position:
        return
    if position is None or position <= header.first:
        raise SettingsError(
            f"output {output}: lacks verdicts that it had, it ends at page {position or 0} of the index, not"
            f" {header.position or 0}; bring it back, or remove {log.path} to go on without them"
        )


def _refuse_beginning(
    output: Path, position: int | None, log: VerdictLog, begun: Sequence[BegunRows]
) -> None:
    """Raise SettingsError for an output that lacks the verdicts on the beginning of some rows."""
    if (position or 0) >= log.first:
        return
    for rows in begun:
        if log.count(rows.id) < rows.judged:
            raise SettingsError(
                f"output {output}: would lack the first verdicts of {rows.name}, which an interrupted scan of"
                " this index gave; scan without -o, or with a new index"
            )


def _refuse_verdicts_of_others(output: Path, sink: Sink, index: Index) -> None:
    """Raise SettingsError for a table that has verdicts, but none of this index."""
    if sink.topics() and index.journal not in sink.topics():
        raise SettingsError(
            f"output {output}: has verdicts of another index; name a new one, or with --index the index that"
            " they are of"
        )

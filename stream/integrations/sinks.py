"""Tables that verdicts are exported to: DuckDB, PostgreSQL, Parquet. Each needs the extra `export`."""

from __future__ import annotations

import abc
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from stream.errors import NeardupError, SettingsError
from stream.messages.verdict import VerdictRecord

TABLE: Final = "verdicts"
PROGRESS: Final = "verdicts_progress"
COLUMNS: Final = {
    "id": "VARCHAR NOT NULL",
    "url": "VARCHAR",
    "verdict": "VARCHAR NOT NULL",
    "change": "VARCHAR",
    "cluster": "VARCHAR",
    "duplicate_of_url": "VARCHAR",
    "duplicate_of_id": "VARCHAR",
    "distance": "INTEGER",
    "similarity": "DOUBLE PRECISION",
    "fingerprint": "VARCHAR",
    "text_hash": "VARCHAR",
    "scheme": "VARCHAR NOT NULL",
    "source_topic": "VARCHAR NOT NULL",
    "source_topic_id": "VARCHAR NOT NULL",
    "source_partition": "INTEGER NOT NULL",
    "source_offset": "BIGINT NOT NULL",
    "fetched_at": "TIMESTAMPTZ",
    "decided_at": "TIMESTAMPTZ NOT NULL",
    "reason": "VARCHAR",
}
_CREATE: Final = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} ({', '.join(map(' '.join, COLUMNS.items()))})",
    f"CREATE TABLE IF NOT EXISTS {PROGRESS} (topic_id VARCHAR NOT NULL, partition INTEGER NOT NULL, "
    "next BIGINT NOT NULL, PRIMARY KEY (topic_id, partition))",
)
_ADVANCE: Final = (
    f"INSERT INTO {PROGRESS} VALUES (%s, %s, %s) "  # noqa: S608 (a constant)
    "ON CONFLICT (topic_id, partition) DO UPDATE SET next = excluded.next"
)
_OFFSETS: Final = f"SELECT partition, next FROM {PROGRESS} WHERE topic_id = %s"  # noqa: S608


_CONNECTION: Final = re.compile(r"postgres(ql)?:|.*\bpassword\s*=", re.IGNORECASE | re.DOTALL)
"""What begins so may hold a password, and is quoted in no message."""
_UNREADABLE: Final = (
    "target postgresql: not as PostgreSQL reads postgresql://user@host:port/database: give the password in "
    "PGPASSWORD, or write characters like @, / and % of user and password as %40, %2F and %25"
)


DUCKDB: Final = (".duckdb", ".ddb", ".db")
_TARGETS: Final = "write NAME.duckdb, NAME.parquet (a directory), or postgresql://user@host/database"


class ExportError(NeardupError):
    """The target of an export cannot be opened or written; the message names it."""


class Sink(abc.ABC):
    """A database with a table of verdicts, and one of how far they were exported."""

    @abc.abstractmethod
    def offsets(self, topic_id: str) -> dict[int, int]:
        """By partition of the verdicts topic, the next offset to export."""

    @abc.abstractmethod
    def append(self, rows: Sequence[VerdictRecord], topic_id: str, offsets: Mapping[int, int]) -> None:
        """Rows and offsets, both or neither. Raises ExportError."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of it."""


def name_of(target: str) -> str:
    """What messages call a target: a URL may hold a password, so its scheme only."""
    scheme, found, _ = target.partition("://")
    return scheme if found else target


@contextmanager
def open_sink(target: str) -> Iterator[Sink]:
    """`postgresql://...`, a directory `*.parquet`, or a DuckDB file, `*.duckdb`; the latter two are made.

    Raises SettingsError, ExportError.
    """
    from stream.integrations.parquet import SUFFIX, ParquetSink

    sink: Sink
    try:
        if target.startswith(("postgresql://", "postgres://")):
            sink = PostgresSink(target)
        elif _CONNECTION.match(target):
            raise SettingsError(_UNREADABLE)
        elif "://" in target:
            raise SettingsError(f"target {name_of(target)}: no such database; {_TARGETS}")
        elif target.rstrip("/").endswith(SUFFIX):
            sink = ParquetSink(Path(target))
        elif Path(target).suffix in DUCKDB:
            sink = DuckSink(Path(target))
        else:
            shown = "with an @" if "@" in target else target  # perhaps a URL that holds a password
            raise SettingsError(f"target {shown}: its suffix names no format; {_TARGETS}")
    except ImportError as error:
        raise SettingsError(
            f"target {name_of(target)}: pip install 'neardup-stream[export]' ({error})"
        ) from error
    try:
        yield sink
    finally:
        sink.close()


class DuckSink(Sink):
    """A DuckDB file; one process writes it at a time."""

    def __init__(self, path: Path) -> None:
        import duckdb
        import pyarrow  # noqa: F401 (by which rows go in, several thousand at once)

        self._path, self._errors = path, duckdb.Error
        with self._explained():
            self._database = duckdb.connect(str(path))
            for statement in _CREATE:
                self._database.execute(statement)

    def offsets(self, topic_id: str) -> dict[int, int]:
        """See `Sink`."""
        with self._explained():
            return dict(self._database.execute(_OFFSETS.replace("%s", "?"), [topic_id]).fetchall())

    def append(self, rows: Sequence[VerdictRecord], topic_id: str, offsets: Mapping[int, int]) -> None:
        """See `Sink`."""
        import pyarrow

        with self._explained():
            self._database.begin()
            try:
                if rows:
                    columns = zip(*map(values_of, rows), strict=True)
                    table = pyarrow.table(dict(zip(COLUMNS, map(list, columns), strict=True)))
                    self._database.register("coming", table)
                    self._database.execute(f"INSERT INTO {TABLE} SELECT * FROM coming")  # noqa: S608
                    self._database.unregister("coming")
                for partition, offset in offsets.items():
                    self._database.execute(_ADVANCE.replace("%s", "?"), [topic_id, partition, offset])
                self._database.commit()
            except BaseException:
                self._database.rollback()
                raise

    def close(self) -> None:
        """See `Sink`."""
        self._database.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise ExportError(f"target {self._path}: {error}") from error


class PostgresSink(Sink):
    """A PostgreSQL database; the two tables are made in the first schema of its search path.

    Raises SettingsError for a URL that libpq cannot read, without quoting it.
    """

    def __init__(self, url: str) -> None:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict

        self._errors = psycopg.Error
        try:
            parts = conninfo_to_dict(url)
        except psycopg.ProgrammingError:  # which quotes what it cannot read
            raise SettingsError(_UNREADABLE) from None
        if any("@" in str(parts.get(name, "")) for name in ("host", "port", "dbname")):
            raise SettingsError(_UNREADABLE)  # the rest of a password taken for one of these
        with self._explained():
            self._database = psycopg.connect(url)
            for statement in _CREATE:
                self._database.execute(statement)
            self._database.commit()

    def offsets(self, topic_id: str) -> dict[int, int]:
        """See `Sink`."""
        with self._explained():
            found: dict[int, int] = dict(self._database.execute(_OFFSETS, [topic_id]).fetchall())
            self._database.commit()
            return found

    def append(self, rows: Sequence[VerdictRecord], topic_id: str, offsets: Mapping[int, int]) -> None:
        """See `Sink`."""
        with self._explained(), self._database.transaction(), self._database.cursor() as cursor:
            with cursor.copy(f"COPY {TABLE} FROM STDIN") as copy:
                for row in rows:
                    copy.write_row([_without_nul(value) for value in values_of(row)])
            cursor.executemany(_ADVANCE, [(topic_id, *each) for each in offsets.items()])

    def close(self) -> None:
        """See `Sink`."""
        self._database.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:  # which may quote host, user and database, never the password
            raise ExportError(f"target postgresql: {str(error).strip()}") from error


def values_of(row: VerdictRecord) -> tuple[Any, ...]:
    """What stands in the columns, in their order."""
    other, source = row.duplicate_of, row.source
    return (
        row.id,
        row.url,
        row.verdict,
        row.change,
        row.cluster,
        other.url if other else None,
        other.id if other else None,
        row.distance,
        row.similarity,
        row.fingerprint,
        row.text_hash,
        row.scheme,
        source.topic,
        source.topic_id,
        source.partition,
        source.offset,
        _moment(row.fetched_at),
        _moment(row.decided_at),
        row.reason,
    )


def _moment(told: str | None) -> datetime | None:
    return None if told is None else datetime.fromisoformat(told)


def _without_nul(value: Any) -> Any:
    """PostgreSQL's text has no NUL; a crawler's URL may."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value

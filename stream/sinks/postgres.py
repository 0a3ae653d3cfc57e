"""A PostgreSQL database that verdicts are exported to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from stream.errors import SettingsError
from stream.messages.verdict import VerdictRecord
from stream.sinks.base import ExportError, Sink, values_of
from stream.sinks.sql import ADVANCE, CREATE, OFFSETS, TABLE

UNREADABLE: Final = (
    "target postgresql: not as PostgreSQL reads postgresql://user@host:port/database: give the password in "
    "PGPASSWORD, or write characters like @, / and % of user and password as %40, %2F and %25"
)


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
            raise SettingsError(UNREADABLE) from None
        if any("@" in str(parts.get(name, "")) for name in ("host", "port", "dbname")):
            raise SettingsError(UNREADABLE)  # the rest of a password taken for one of these
        with self._explained():
            self._database = psycopg.connect(url)
            for statement in CREATE:
                self._database.execute(statement)
            self._database.commit()

    def offsets(self, topic_id: str) -> dict[int, int]:
        """See `Sink`."""
        with self._explained():
            found: dict[int, int] = dict(self._database.execute(OFFSETS, [topic_id]).fetchall())
            self._database.commit()
            return found

    def append(self, rows: Sequence[VerdictRecord], topic_id: str, offsets: Mapping[int, int]) -> None:
        """See `Sink`."""
        with self._explained(), self._database.transaction(), self._database.cursor() as cursor:
            with cursor.copy(f"COPY {TABLE} FROM STDIN") as copy:
                for row in rows:
                    copy.write_row([_without_nul(value) for value in values_of(row)])
            cursor.executemany(ADVANCE, [(topic_id, *each) for each in offsets.items()])

    def close(self) -> None:
        """See `Sink`."""
        self._database.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:  # which may quote host, user and database, never the password
            raise ExportError(f"target postgresql: {str(error).strip()}") from error


def _without_nul(value: Any) -> Any:
    """PostgreSQL's text has no NUL; a crawler's URL may."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value

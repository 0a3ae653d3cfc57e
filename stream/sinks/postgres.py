"""Exports verdicts to a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from stream.errors import SettingsError
from stream.messages.verdict import VerdictRecord
from stream.sinks.base import ExportError, Sink, values_of
from stream.sinks.sql import ADVANCE, COLUMNS_OF_TABLE, CREATE, OFFSETS, TABLE, TOPICS, additions

UNREADABLE: Final = (
    "target postgresql: not a valid postgresql://user@host:port/database: give the password in PGPASSWORD, "
    "or write characters like @, / and % in user and password as %40, %2F and %25"
)


class PostgresSink(Sink):
    """Writes verdicts to PostgreSQL, to two tables that it creates in the first schema of the search path.

    Raises SettingsError for a URL that libpq cannot parse, without quoting it.
    """

    def __init__(self, url: str) -> None:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict

        self._errors = psycopg.Error
        try:
            parts = conninfo_to_dict(url)
        except psycopg.ProgrammingError:  # its text may quote the password
            raise SettingsError(UNREADABLE) from None
        if any("@" in str(parts.get(name, "")) for name in ("host", "port", "dbname")):
            raise SettingsError(UNREADABLE)  # it is the rest of an unescaped password
        with self._translated_errors():
            self._database = psycopg.connect(url)
            for statement in CREATE:
                self._database.execute(statement)
            there = self._database.execute(COLUMNS_OF_TABLE).description or ()
            for statement in additions({each.name for each in there}):
                self._database.execute(statement)
            self._database.commit()

    def offsets(self, topic_id: str) -> dict[int, int]:
        with self._translated_errors():
            rows: dict[int, int] = dict(self._database.execute(OFFSETS, [topic_id]).fetchall())
            self._database.commit()
            return rows

    def topics(self) -> set[str]:
        with self._translated_errors():
            topic_ids = {topic_id for (topic_id,) in self._database.execute(TOPICS).fetchall()}
            self._database.commit()
            return topic_ids

    def append(self, rows: Sequence[VerdictRecord], topic_id: str, offsets: Mapping[int, int]) -> None:
        with self._translated_errors(), self._database.transaction(), self._database.cursor() as cursor:
            with cursor.copy(f"COPY {TABLE} FROM STDIN") as copy:
                for row in rows:
                    copy.write_row([_without_nul(value) for value in values_of(row)])
            cursor.executemany(ADVANCE, [(topic_id, *each) for each in offsets.items()])

    def close(self) -> None:
        self._database.close()

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:  # its text may name host, user and database, but not the password
            raise ExportError(f"target postgresql: {str(error).strip()}") from error


def _without_nul(value: Any) -> Any:
    """Replace NUL, which a crawled URL may contain but PostgreSQL's text type cannot."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value

"""Exports verdicts to a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from stream.errors import SettingsError
from stream.messages.verdict import VerdictRecord
from stream.sinks.base import values_of
from stream.sinks.sql import ADVANCE, TABLE, SqlSink

UNREADABLE: Final = (
    "target postgresql: not a valid postgresql://user@host:port/database: give the password in PGPASSWORD, "
    "or write characters like @, / and % in user and password as %40, %2F and %25"
)


class PostgresSink(SqlSink):
    """Writes verdicts to PostgreSQL, to two tables that it creates in the first schema of the search path.

    Raises SettingsError without the extra `export`, and for a URL that libpq cannot parse, without quoting
    it.
    """

    def __init__(self, url: str) -> None:
        try:
            import psycopg
            from psycopg.conninfo import conninfo_to_dict
        except ImportError as error:
            raise SettingsError(
                f"target postgresql: pip install 'neardup-stream[export]' ({error})"
            ) from error

        try:
            parts = conninfo_to_dict(url)
        except psycopg.ProgrammingError:  # its text may quote the password
            raise SettingsError(UNREADABLE) from None
        if any("@" in str(parts.get(name, "")) for name in ("host", "port", "dbname")):
            raise SettingsError(UNREADABLE)  # it is the rest of an unescaped password
        # An error's text may name host, user and database, but not the password.
        super().__init__("postgresql", lambda: psycopg.connect(url, autocommit=True), psycopg.Error)

    def append(self, rows: Sequence[VerdictRecord], topic_id: str, offsets: Mapping[int, int]) -> None:
        with self._translated_errors(), self._database.transaction(), self._database.cursor() as cursor:
            with cursor.copy(f"COPY {TABLE} FROM STDIN") as copy:
                for row in rows:
                    copy.write_row([_without_nul(value) for value in values_of(row)])
            cursor.executemany(ADVANCE, [(topic_id, *each) for each in offsets.items()])


def _without_nul(value: Any) -> Any:
    """Replace NUL, which a crawled URL may contain but PostgreSQL's text type cannot."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value

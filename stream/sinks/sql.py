"""What sinks with SQL tables share. `%s` is a parameter of a statement."""

from __future__ import annotations

import abc
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from stream.sinks.base import COLUMNS, ExportError, Sink

TABLE: Final = "verdicts"
PROGRESS: Final = "verdicts_progress"
CREATE: Final = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} ({', '.join(map(' '.join, COLUMNS.items()))})",
    f"CREATE TABLE IF NOT EXISTS {PROGRESS} (topic_id VARCHAR NOT NULL, partition INTEGER NOT NULL, "
    "next BIGINT NOT NULL, PRIMARY KEY (topic_id, partition))",
)
COLUMNS_OF_TABLE: Final = f"SELECT * FROM {TABLE} LIMIT 0"  # noqa: S608
ADVANCE: Final = (
    f"INSERT INTO {PROGRESS} VALUES (%s, %s, %s) "  # noqa: S608 (a constant)
    "ON CONFLICT (topic_id, partition) DO UPDATE SET next = excluded.next"
)
OFFSETS: Final = f"SELECT partition, next FROM {PROGRESS} WHERE topic_id = %s"  # noqa: S608
TOPICS: Final = f"SELECT DISTINCT topic_id FROM {PROGRESS}"  # noqa: S608


class SqlSink(Sink, abc.ABC):
    """A sink with two tables of a database, which it creates or completes.

    Each statement outside a transaction is one by itself.
    """

    parameter: ClassVar = "%s"
    """How the database writes a parameter of a statement."""

    def __init__(self, target: str, connect: Callable[[], Any], errors: type[Exception]) -> None:
        """`errors`, of the database's client, are raised as ExportError, which names the target."""
        self._target, self._errors = target, errors
        with self._translated_errors():
            self._database = connect()
            for statement in CREATE:
                self._execute(statement)
            there = self._execute(COLUMNS_OF_TABLE).description or ()
            for statement in additions({name for name, *_ in there}):
                self._execute(statement)

    def offsets(self, topic_id: str) -> dict[int, int]:
        with self._translated_errors():
            return dict(self._execute(OFFSETS, topic_id).fetchall())

    def topics(self) -> set[str]:
        with self._translated_errors():
            return {topic_id for (topic_id,) in self._execute(TOPICS).fetchall()}

    def close(self) -> None:
        self._database.close()

    def _execute(self, statement: str, *parameters: object) -> Any:
        return self._database.execute(statement.replace("%s", self.parameter), parameters)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise ExportError(f"target {self._target}: {str(error).strip()}") from error


def additions(columns: Collection[str]) -> list[str]:
    """Return the statements that add the missing columns to a table of an earlier version, which has
    `columns`."""
    return [
        f"ALTER TABLE {TABLE} ADD COLUMN IF NOT EXISTS {name} {kind}"
        for name, kind in COLUMNS.items()
        if name not in columns
    ]

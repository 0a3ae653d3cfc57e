"""Exports verdicts to a DuckDB file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from stream.messages.verdict import VerdictRecord
from stream.sinks.base import COLUMNS, ExportError, Sink, values_of
from stream.sinks.sql import ADVANCE, COLUMNS_OF_TABLE, CREATE, OFFSETS, TABLE, TOPICS, additions

SUFFIXES: Final = (".duckdb", ".ddb", ".db")


class DuckSink(Sink):
    """Writes verdicts to a DuckDB file, which only one process can open at a time."""

    def __init__(self, path: Path) -> None:
        import duckdb
        import pyarrow  # noqa: F401 (needed by `append`; fail early)

        self._path, self._errors = path, duckdb.Error
        with self._translated_errors():
            self._database = duckdb.connect(str(path))
            for statement in CREATE:
                self._database.execute(statement)
            there = self._database.execute(COLUMNS_OF_TABLE).description
            for statement in additions({name for name, *_ in there}):
                self._database.execute(statement)

    def offsets(self, topic_id: str) -> dict[int, int]:
        with self._translated_errors():
            return dict(self._database.execute(OFFSETS.replace("%s", "?"), [topic_id]).fetchall())

    def topics(self) -> set[str]:
        with self._translated_errors():
            return {topic_id for (topic_id,) in self._database.execute(TOPICS).fetchall()}

    def append(self, rows: Sequence[VerdictRecord], topic_id: str, offsets: Mapping[int, int]) -> None:
        import pyarrow

        with self._translated_errors():
            self._database.begin()
            try:
                if rows:
                    columns = zip(*map(values_of, rows), strict=True)
                    table = pyarrow.table(dict(zip(COLUMNS, map(list, columns), strict=True)))
                    self._database.register("coming", table)
                    self._database.execute(f"INSERT INTO {TABLE} SELECT * FROM coming")  # noqa: S608
                    self._database.unregister("coming")
                for partition, offset in offsets.items():
                    self._database.execute(ADVANCE.replace("%s", "?"), [topic_id, partition, offset])
                self._database.commit()
            except BaseException:
                with suppress(self._errors):  # a commit that failed has rolled back
                    self._database.rollback()
                raise

    def close(self) -> None:
        self._database.close()

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise ExportError(f"target {self._path}: {error}") from error

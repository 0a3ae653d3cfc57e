"""Exports verdicts to a DuckDB file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from stream.messages.verdict import VerdictRecord
from stream.sinks.base import COLUMNS, values_of
from stream.sinks.sql import ADVANCE, TABLE, SqlSink

SUFFIXES: Final = (".duckdb", ".ddb", ".db")


class DuckSink(SqlSink):
    """Writes verdicts to a DuckDB file, which only one process can open at a time."""

    parameter = "?"

    def __init__(self, path: Path) -> None:
        import duckdb

        super().__init__(str(path), lambda: duckdb.connect(str(path.absolute())), duckdb.Error)

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
                    self._execute(ADVANCE, topic_id, partition, offset)
                self._database.commit()
            except BaseException:
                with suppress(self._errors):  # a commit that failed has rolled back
                    self._database.rollback()
                raise

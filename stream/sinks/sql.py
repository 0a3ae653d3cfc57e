"""SQL statements shared by DuckDB and PostgreSQL. `%s` is a parameter."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from stream.sinks.base import COLUMNS

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


def additions(columns: Collection[str]) -> list[str]:
    """Return the statements that add the missing columns to a table of an earlier version, which has
    `columns`."""
    return [
        f"ALTER TABLE {TABLE} ADD COLUMN {name} {kind}"
        for name, kind in COLUMNS.items()
        if name not in columns
    ]

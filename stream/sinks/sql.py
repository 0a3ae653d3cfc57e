"""SQL statements shared by DuckDB and PostgreSQL. `%s` is a parameter."""

from __future__ import annotations

from typing import Final

from stream.sinks.base import COLUMNS

TABLE: Final = "verdicts"
PROGRESS: Final = "verdicts_progress"
CREATE: Final = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} ({', '.join(map(' '.join, COLUMNS.items()))})",
    f"CREATE TABLE IF NOT EXISTS {PROGRESS} (topic_id VARCHAR NOT NULL, partition INTEGER NOT NULL, "
    "next BIGINT NOT NULL, PRIMARY KEY (topic_id, partition))",
)
ADVANCE: Final = (
    f"INSERT INTO {PROGRESS} VALUES (%s, %s, %s) "  # noqa: S608 (a constant)
    "ON CONFLICT (topic_id, partition) DO UPDATE SET next = excluded.next"
)
OFFSETS: Final = f"SELECT partition, next FROM {PROGRESS} WHERE topic_id = %s"  # noqa: S608
TOPICS: Final = f"SELECT DISTINCT topic_id FROM {PROGRESS}"  # noqa: S608

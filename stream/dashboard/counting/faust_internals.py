"""Every private part of Faust that the dashboard uses, except the methods that its subclasses override.

Checked against faust-streaming 0.15.3; `pyproject.toml` pins the minor version.
`tests/unit/test_faust_internals.py` tests that each part and each overridden method still exists with the
shape expected here, so an incompatible version fails there.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from faust import streams
from mode import want_seconds


def open_database(table: Any, partition: int) -> Any:
    """The RocksDB of a table's partition (a `rocksdict.Rdict`); None if it is not open in this process."""
    return table.data._dbs.get(partition)


def database(table: Any, partition: int) -> Any:
    """The RocksDB of a table's partition, opened if necessary. Faust itself accesses single rows."""
    return table.data._db_for_partition(partition)


def database_path(table: Any, partition: int) -> Path:
    """Where the RocksDB of a table's partition is."""
    return Path(table.data.partition_path(partition))


def items(table: Any) -> Iterator[tuple[Any, Any]]:
    """Keys and rows of the partitions active here. Raises the error at which RocksDB stops, where Faust's
    iteration ends silently."""
    store = table.data
    for db in store._dbs_for_actives():
        entries = db.iter()
        entries.seek_to_first()
        while entries.valid():
            if not is_offset(table, entries.key()):
                yield store._decode_key(entries.key()), store._decode_value(entries.value())
            entries.next()
        entries.status()


def is_offset(table: Any, key: bytes) -> bool:
    """Whether a key in a table's RocksDB is not that of a row, but of how far the changelog was recovered."""
    return bool(key == table.data.offset_key)


def write_standbys(app: Any) -> None:
    """Write rows that came from other dashboards, of which Faust collects a thousand in memory."""
    app.tables.recovery.flush_buffers()


def producer_of(app: Any) -> AIOKafkaProducer:
    """Faust's producer for changelogs, which can send whole batches."""
    return app.producer._producer


def is_changelog(consumer: Any, partition: Any) -> bool:
    """Whether a partition belongs to a changelog topic. `consumer` is Faust's."""
    return bool(consumer._is_changelog_tp(partition))


def changelog_config(app: Any, table: Any) -> dict[str, str]:
    """The configuration with which Faust creates the changelog of a table."""
    topic = table.changelog_topic
    retention = int(want_seconds(topic.retention) * 1000) if topic.retention else None
    config = app.transport._topic_config(retention, topic.compacting, topic.deleting) | (topic.config or {})
    return {option: str(value) for option, value in config.items()}


@contextlib.contextmanager
def in_scope_of(event: Any) -> Iterator[None]:
    """Make `event` Faust's current event, from which tables derive the partition."""
    token = streams._current_event.set(weakref.ref(event))
    try:
        yield
    finally:
        streams._current_event.reset(token)

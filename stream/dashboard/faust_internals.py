"""Every private part of Faust that the dashboard uses, but for the methods that its subclasses override.

Checked against faust-streaming 0.15.3; `pyproject.toml` pins the minor version. That each part and each
overridden method still exists, with the shape expected here, is tested in
`tests/unit/test_faust_internals.py`: an incompatible version fails there.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

from aiokafka import AIOKafkaProducer
from faust import streams


def open_database(table: Any, partition: int) -> Any:
    """RocksDB of a partition of the table (a `rocksdict.Rdict`); None where it is not open here."""
    return table.data._dbs.get(partition)


def database(table: Any, partition: int) -> Any:
    """The same, opened where it is not. Faust itself reads and writes row by row."""
    return table.data._db_for_partition(partition)


def producer_of(app: Any) -> AIOKafkaProducer:
    """The producer that Faust sends changelogs with: it takes whole batches."""
    return app.producer._producer


def is_changelog(consumer: Any, partition: Any) -> bool:
    """Whether a partition is one of a changelog topic; `consumer` is Faust's."""
    return bool(consumer._is_changelog_tp(partition))


@contextlib.contextmanager
def in_scope_of(event: Any) -> Iterator[None]:
    """Make `event` Faust's current event, from which tables derive the partition."""
    token = streams._current_event.set(weakref.ref(event))
    try:
        yield
    finally:
        streams._current_event.reset(token)

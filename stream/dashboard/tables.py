"""Faust tables of encoded rows, in RocksDB: what they do beyond Faust's own.

Faust writes row by row, and sends a changelog record for each. Here the rows of a partition are read, written
and sent together; Faust still says where they are, recovers them, and moves them with their partitions.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import faust
import numpy as np
from faust import streams
from faust.types import TP
from rocksdict import WriteBatch

from stream.kafka.record_batches import header_block, record_batches
from stream.messages.texts import Texts

STORE_BYTES: Final = 64 << 20
"""RAM of all tables together, in write buffers and caches. There is one RocksDB a table and partition; by
Faust's defaults each would take 2 GiB of cache and 64 MiB of buffer."""
TABLES: Final = 4
WRITE_BUFFERS: Final = 2
_LEAST, _MOST = 64 << 10, 2 << 20
CHANGELOG_BYTES: Final = 900_000
"""Largest batch of changelog records; below Kafka's default `max.message.bytes` of 1 MiB."""
_NO_HEADERS: Final = Texts.of([header_block([])])

Rows = Mapping[bytes, bytes]
"""Key -> row, as RocksDB and the changelog have them."""


class RowTable(faust.Table):  # type: ignore[type-arg]
    """A table of bytes."""

    def __init__(self, app: Any, *, partitions: int, **options: Any) -> None:
        share = min(_MOST, max(_LEAST, STORE_BYTES // (TABLES * partitions * (WRITE_BUFFERS + 1))))
        store = {
            "write_buffer_size": share,
            "max_write_buffer_number": WRITE_BUFFERS,
            "target_file_size_base": 8 << 20,
            "block_cache_size": share,
            "max_open_files": 64,
        }
        made = {"value_type": bytes, "default": bytes, "options": store, "partitions": partitions}
        super().__init__(app, **{**made, **options})

    def _verify_source_topic_partitions(self, source_topic: str) -> None:
        # Of a changelog made a moment ago, the consumer's metadata may say that it has no partitions.
        if self.app.consumer.topic_partitions(self.changelog_topic_name) != 0:
            super()._verify_source_topic_partitions(source_topic)

    def stored(self, partition: int) -> Any:
        """RocksDB of a partition; None for one that is not here."""
        store: Any = self.data
        return store._dbs.get(partition)

    def rows(self, partition: int, keys: Sequence[bytes]) -> list[bytes | None]:
        """Rows of a partition; None for what is not there, or not here."""
        stored = self.stored(partition)
        if stored is None or not keys:
            return [None] * len(keys)
        found: list[bytes | None] = stored.get(list(keys))
        return found

    def write(self, partition: int, rows: Rows) -> None:
        """Put rows into RocksDB. What reads them finds all of them or none."""
        batch = WriteBatch(raw_mode=True)
        for key, row in rows.items():
            batch.put(key, row)
        store: Any = self.data
        store._db_for_partition(partition).write(batch)

    async def send(self, partition: int, rows: Rows) -> None:
        """Write rows to the changelog, and wait until the broker has them."""
        if not rows:
            return
        faust_producer: Any = self.app.producer
        producer, topic = faust_producer._producer, self.changelog_topic_name
        values = Texts.of(list(rows.values()))
        headers_of = np.zeros(len(rows), np.int64)
        batches = record_batches(
            list(rows), values, _NO_HEADERS, headers_of, CHANGELOG_BYTES, transactional=False
        )
        sent = [await producer.send_batch(batch, topic, partition=partition) for batch in batches]
        written = await asyncio.gather(*sent)
        end = written[-1].offset + batches[-1].record_count()
        # RocksDB has all of it: recovery begins behind.
        if self.stored(partition) is not None:  # nor has a rebalance taken the partition meanwhile
            self.data.set_persisted_offset(TP(topic, partition), end - 1)

    def drop(self, keys: list[Any]) -> None:
        """Forget rows here; the changelog forgets them by its own retention."""
        for key in keys:
            self.data.pop(key, None)

    def _to_value(self, value: Any) -> Any:
        return value


@contextlib.contextmanager
def in_scope_of(event: Any) -> Iterator[None]:
    """Let tables know the event's partition: what is folded together has no event of its own."""
    token = streams._current_event.set(weakref.ref(event))
    try:
        yield
    finally:
        streams._current_event.reset(token)

"""Faust tables of encoded rows in RocksDB, with batch access.

Faust's own tables read and write single rows, and send a changelog record for each. Here, rows of a partition
are read, written and sent in batches. Faust still assigns the partitions, recovers tables and moves them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import faust
import numpy as np
from faust.types import TP
from rocksdict import BottommostLevelCompaction, CompactOptions, WriteBatch

from stream.dashboard.counting.faust_internals import database, is_offset, open_database, producer_of
from stream.futures import retrieved
from stream.kafka.record_batches import header_block, record_batches
from stream.messages.byte_strings import StringColumn, Texts

if TYPE_CHECKING:
    from stream.dashboard.counting.forgotten import ForgottenPages

STORE_BYTES: Final = 64 << 20
"""RAM of all tables together, for write buffers and caches. Each table and partition has its own RocksDB,
which would take 2 GiB of cache and 64 MiB of buffer by Faust's defaults."""
TABLES: Final = 4
WRITE_BUFFERS: Final = 2
_LEAST, _MOST = 64 << 10, 2 << 20
CHANGELOG_BYTES: Final = 900_000
"""Maximum size of a batch of changelog records, below Kafka's default `max.message.bytes` of 1 MiB."""
FIRST_KEY: Final = b'"'
BEHIND_KEYS: Final = b"~"
"""Keys of rows, which are JSON, are between these. What sorts before them is an index."""
_NO_HEADERS: Final = Texts.of([header_block([])])

Rows = Mapping[bytes, bytes]
"""Key -> row, both encoded as in RocksDB and the changelog."""


class Rewritten(NamedTuple):
    """What takes the place of a row."""

    row: bytes
    entries: Rows | None = None
    """Entries of an index, which are in RocksDB alone."""
    gone: Iterable[bytes] = ()
    """Keys of entries that are removed."""


class RowTable(faust.Table):  # type: ignore[type-arg]
    """A Faust table whose values are encoded rows."""

    def __init__(self, app: Any, *, partitions: int, **options: Any) -> None:
        share = min(_MOST, max(_LEAST, STORE_BYTES // (TABLES * partitions * (WRITE_BUFFERS + 1))))
        store = {
            "write_buffer_size": share,
            "max_write_buffer_number": WRITE_BUFFERS,
            "target_file_size_base": 8 << 20,
            "block_cache_size": share,
            "max_open_files": 64,
        }
        defaults = {"value_type": bytes, "default": bytes, "options": store, "partitions": partitions}
        super().__init__(app, **{**defaults, **options})

    def _verify_source_topic_partitions(self, source_topic: str) -> None:
        # For a changelog topic that was just created, the consumer's metadata may show no partitions yet.
        if self.app.consumer.topic_partitions(self.changelog_topic_name) != 0:
            super()._verify_source_topic_partitions(source_topic)

    def assigned_database(self, partition: int) -> Any:
        """Return the RocksDB of a partition, or None if the partition is not assigned here."""
        return open_database(self, partition)

    def rows(self, partition: int, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return rows of a partition; None for those that do not exist or are not stored here."""
        store = self.assigned_database(partition)
        if store is None or not keys:
            return [None] * len(keys)
        values: list[bytes | None] = store.get(list(keys))
        return values

    def write(self, partition: int, rows: Rows, gone: Iterable[bytes] = ()) -> None:
        """Write rows to RocksDB, and remove those with the keys `gone`, atomically."""
        batch = WriteBatch(raw_mode=True)
        for key in gone:
            batch.delete(key)
        for key, row in rows.items():
            batch.put(key, row)
        database(self, partition).write(batch)

    async def send(self, partition: int, rows: Rows) -> None:
        """Send rows to the changelog, and wait for the broker's acknowledgement."""
        if not rows:
            return
        producer, topic = producer_of(self.app), self.changelog_topic_name
        values = Texts.of(list(rows.values()))
        headers_of = np.zeros(len(rows), np.int64)
        batches = record_batches(
            StringColumn.of(list(rows)), values, _NO_HEADERS, headers_of, CHANGELOG_BYTES, transactional=False
        )
        sent = [retrieved(await producer.send_batch(batch, topic, partition=partition)) for batch in batches]
        written = await asyncio.gather(*sent)
        end = written[-1].offset + batches[-1].record_count()
        # RocksDB already has these rows, so recovery may start after them.
        if (
            self.assigned_database(partition) is not None
        ):  # unless a rebalance revoked the partition meanwhile
            self.data.set_persisted_offset(TP(topic, partition), end - 1)

    # Rewriting of rows without what they say of pages that are forgotten.

    def without(self, key: bytes, row: bytes, forgotten: ForgottenPages) -> Rewritten | None:
        """Return what takes the place of a row without what it says of forgotten pages; None if it says
        nothing of any."""
        raise NotImplementedError(f"rows of {self.name} have no URLs")

    def index_slices(self, partition: int) -> list[tuple[bytes, bytes]]:
        """Return ranges of keys that are an index, together all, to compact one after the other."""
        return []

    def next_rows(self, partition: int, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of a partition from a key on, and their keys. Raises the error at which RocksDB
        stops."""
        entries = database(self, partition).iter()
        entries.seek(max(start, FIRST_KEY))
        while entries.valid() and entries.key() < BEHIND_KEYS:
            if not is_offset(self, key := entries.key()):
                yield key, entries.value()
            entries.next()
        entries.status()

    def rewritten(
        self, partition: int, keys: Sequence[bytes], forgotten: ForgottenPages
    ) -> dict[bytes, Rewritten]:
        """Return what takes the place of rows, as they are now."""
        rows = zip(keys, self.rows(partition, keys), strict=True)
        changed = {key: self.without(key, row, forgotten) for key, row in rows if row is not None}
        return {key: each for key, each in changed.items() if each is not None}

    async def replace(self, partition: int, rows: Mapping[bytes, Rewritten]) -> None:
        """Replace rows. The changelog comes first: a row in RocksDB that says what it should is not looked at
        again after a crash."""
        await self.send(partition, {key: each.row for key, each in rows.items()})
        self.write_rewritten(partition, rows)

    def write_rewritten(self, partition: int, rows: Mapping[bytes, Rewritten]) -> None:
        """Replace rows in RocksDB."""
        for key, each in rows.items():
            self.write(partition, {key: each.row, **(each.entries or {})}, each.gone)

    def compact(self, partition: int, start: bytes, end: bytes) -> None:
        """Rewrite the files that have keys in [start, end) without what was removed or replaced."""
        options = CompactOptions()  # by default the lowest level may keep keys and rows of what was removed
        options.set_bottommost_level_compaction(BottommostLevelCompaction.force_optimized())
        database(self, partition).compact_range(start, end, options)

    def flush(self, partition: int) -> None:
        """Write what is in memory to files, and drop the log that has it."""
        database(self, partition).flush()

    def drop(self, keys: list[Any]) -> None:
        """Delete rows from RocksDB. The changelog drops them by its own retention."""
        for key in keys:
            self.data.pop(key, None)

    def _to_value(self, value: Any) -> Any:
        return value

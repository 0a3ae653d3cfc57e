"""Faust tables of encoded rows, in RocksDB: what they do beyond Faust's own."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Iterator
from typing import Any, Final

import faust
from faust import streams

STORE_OPTIONS: Final = {
    # One RocksDB a table and partition; Faust's defaults would take 2 GiB of cache and 64 MiB of buffer each.
    "write_buffer_size": 2 << 20,
    "max_write_buffer_number": 2,
    "target_file_size_base": 8 << 20,
    "block_cache_size": 2 << 20,
    "max_open_files": 64,
}


class RowTable(faust.Table):  # type: ignore[type-arg]
    """A table of bytes. Remembers which changelog records are under way, so that one can wait for them."""

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(
            app, **{"value_type": bytes, "options": dict(STORE_OPTIONS), "default": bytes, **options}
        )
        self._under_way: set[asyncio.Future[Any]] = set()

    def send_changelog(self, *args: Any, **kwargs: Any) -> Any:
        """As Faust does, and note the record."""
        sent = super().send_changelog(*args, **kwargs)
        self._under_way.add(sent)
        return sent

    def _verify_source_topic_partitions(self, source_topic: str) -> None:
        # Of a changelog made a moment ago, the consumer's metadata may say that it has no partitions.
        if self.app.consumer.topic_partitions(self.changelog_topic_name) != 0:
            super()._verify_source_topic_partitions(source_topic)

    async def durable(self) -> None:
        """Wait until the broker has every changelog record. Raises what a send failed with."""
        under_way, self._under_way = self._under_way, set()
        await asyncio.gather(*under_way)

    def drop(self, keys: list[Any]) -> None:
        """Forget rows here; the changelog forgets them by its own retention."""
        for key in keys:
            self.data.pop(key, None)

    def _to_value(self, value: Any) -> Any:
        return value


@contextlib.contextmanager
def in_scope_of(event: Any) -> Iterator[None]:
    """Let tables read and write the event's partition: a batch has no event of its own."""
    token = streams._current_event.set(weakref.ref(event))
    try:
        yield
    finally:
        streams._current_event.reset(token)

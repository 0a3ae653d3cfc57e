"""Finds records of the topic `clusters` that name what is to be forgotten.

With a lifetime, a superseded anchor may have expired: the topic still has a record of its cluster, with its
URL, but the state has nothing that leads there. So the topic is read, beside the judge.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec
import structlog

from stream.judge.forgetting import Wanted
from stream.kafka.client_owner import ClientOwner
from stream.kafka.names import TopicNames, record_name
from stream.kafka.reader import TopicReader
from stream.messages.verdict import ClusterRecord
from stream.settings import Settings

PAUSE_SECONDS: Final = 0.01
"""Pauses are this long at least: an event loop waits for a millisecond at least, in which a hundred records
can be read."""
MOST_FOUND: Final = 1 << 16
"""Keys with which reading stops until some are taken, about 10 MB. Of a domain there may be many millions."""

log = structlog.get_logger(__name__)


class EndedClusters(ClientOwner):
    """Reads the topic from its beginning, while entered."""

    def __init__(self, settings: Settings, wanted: Wanted) -> None:
        self._wanted = wanted
        self._reader = TopicReader(settings, TopicNames(settings.namespace).clusters, 0)
        self._is_placed = False
        self._found = dict[bytes, None]()
        """Keys of records that name it, in order."""
        self.has_more = False
        """Whether reading stopped before the end, with MOST_FOUND."""

    @property
    def has_found(self) -> bool:
        """Whether some were found that `take` has not returned."""
        return bool(self._found)

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._reader)

    async def search(self, *, pauses: bool = False) -> None:
        """Read on to the end that the topic has now, or until MOST_FOUND are found; with `pauses`, as long as
        it works, in which a judge goes on. Cancelled, as while brokers are unreachable or an open transaction
        hides records, it may be called again."""
        reader, self.has_more = self._reader, False
        bounds = await reader.settled_bounds()
        if not self._is_placed:
            reader.seek(bounds.start)
            self._is_placed = True
        worked = 0.0
        while reader.position < bounds.end:
            if len(self._found) >= MOST_FOUND:
                self.has_more = True
                return
            records, began = await reader.poll(), time.monotonic()
            for each in records:
                if each.value is None:
                    self._found.pop(each.key, None)
                elif self._names(each):
                    self._found[each.key] = None
            worked += time.monotonic() - began
            is_due = pauses and worked >= PAUSE_SECONDS
            await asyncio.sleep(worked if is_due else 0)
            worked = 0.0 if is_due else worked

    def _names(self, record: Any) -> bool:
        try:
            return self._wanted.names(_DECODER.decode(record.value).url)
        except msgspec.DecodeError as error:
            log.error("cluster_refused", message=f"{record_name(record)}: {error}")
            return False

    def take(self, most: int) -> list[str]:
        """Return the clusters of at most so many records that were found, and forget these."""
        some = list(self._found)[:most]
        for key in some:
            del self._found[key]
        return [key.decode() for key in some]


_DECODER = msgspec.json.Decoder(ClusterRecord)

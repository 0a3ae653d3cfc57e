"""Announcements of segments from the thread that makes checkpoints."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.segments import SegmentExport
from stream.errors import SettingsError
from stream.kafka.announced_segments import SegmentAnnouncer
from stream.messages.journal import Genesis
from stream.messages.segments import SegmentRecord
from stream.settings import Settings

T = TypeVar("T")


class _AnnouncementsFromThread:
    """`Announcements` that other threads than that of the event loop may read and make."""

    def __init__(self, topic: SegmentAnnouncer, note: Callable[[int], None]) -> None:
        self._topic, self._note, self._loop = topic, note, asyncio.get_running_loop()

    def read(self) -> Mapping[int, SegmentRecord]:
        """See `Announcements`."""
        announced = self._wait(self._topic.read())
        self._note(len(announced))
        return announced

    def announce(self, record: SegmentRecord) -> None:
        """See `Announcements`."""
        self._wait(self._topic.announce(record))

    def withdraw(self, record: SegmentRecord) -> None:
        """See `Announcements`."""
        self._wait(self._topic.withdraw(record))

    def _wait(self, asking: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(asking, self._loop).result()


@asynccontextmanager
async def segment_export(
    settings: Settings, genesis: Genesis, note: Callable[[int], None]
) -> AsyncIterator[SegmentExport | None]:
    """What exports segments beside checkpoints; None unless the settings say so. `note` is called with the
    number of announced ones. Raises SettingsError if there are no checkpoints."""
    if not settings.segment_anchors:
        yield None
        return
    if not settings.checkpoints:
        raise SettingsError(
            "segment_anchors: needs the setting checkpoints, where files of segments are stored"
        )
    async with SegmentAnnouncer(settings, genesis) as topic:
        announcements = _AnnouncementsFromThread(topic, note)
        yield SegmentExport(Catalogue(settings.checkpoints), genesis, settings.segment_anchors, announcements)

"""Lets one loader at a time work in a namespace, and tells the next what was left unfinished (rule 21)."""

from __future__ import annotations

import asyncio
from typing import Final

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from stream.errors import RefusedError, StaleError
from stream.kafka import clients
from stream.kafka.aiokafka_internals import fetch_committed
from stream.kafka.election import Election
from stream.kafka.names import TopicNames
from stream.kafka.reader import POLL_SECONDS
from stream.roles.loader.records import LoadedSource
from stream.settings import Settings

NAME_CHARACTERS: Final = 500
"""A commit may have 4 KiB of metadata."""


class LoadTurn(Election):
    """The group of loaders. Its only commit names the load that has begun and not ended, if any."""

    def __init__(self, settings: Settings, names: TopicNames) -> None:
        super().__init__(settings, names.load, names.decisions, None)
        self._key = TopicPartition(names.decisions, 0)

    async def come(self) -> None:
        """Wait for an answer of the group, which drops a killed loader after its session's time-out.

        Raises RefusedError if another process loads.
        """
        while not self.answers:
            await self.attend()
            await asyncio.sleep(POLL_SECONDS)
        if not self.won.is_set():
            raise RefusedError(
                f"group {self._group}: another process loads rows into this namespace; wait until it ends"
            )

    async def hold(self) -> None:
        """Stay in the group; must be called regularly. Raises StaleError if another process loads now."""
        await self.attend()
        if self.lost.is_set():
            raise StaleError("another process loads rows now; run the same command again after it")

    async def begin(self, source: LoadedSource, *, abandon: bool) -> None:
        """Note that a load begins. Raises RefusedError if one of other rows has not ended, unless it is to be
        abandoned."""
        digest, name = await self._unfinished()
        if digest not in ("", source.digest) and not abandon:
            raise RefusedError(
                f"rows {name} with the digest {digest} are not loaded to their end: load them first, or give "
                "them up with --abandon. If the same pages are in rows that were made anew, those that were "
                "loaded already will be recrawls"
            )
        await self._note(f"{source.digest} {source.corpus.name[:NAME_CHARACTERS]}")

    async def end(self, source: LoadedSource) -> None:
        """Note that the load has ended."""
        digest, _ = await self._unfinished()
        if digest == source.digest:
            await self._note("")

    async def _unfinished(self) -> tuple[str, str]:
        """Digest and name of the load that has begun and not ended; empty for none."""
        committed = (await fetch_committed(self._consumer, [self._key])).get(self._key)
        digest, _, name = (committed.metadata if committed else "").partition(" ")
        return digest, name

    async def _note(self, metadata: str) -> None:
        while True:
            try:
                await self._consumer.commit({self._key: (0, metadata)})
                return
            except clients.DENIED:
                raise
            except KafkaError:  # another process joins the group
                await self.hold()
                await asyncio.sleep(POLL_SECONDS)

"""Reads every partition of a topic, and those that are added to it meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack
from typing import Any, Final

from aiokafka import TopicPartition

from stream.kafka import broker_metadata, clients
from stream.kafka.aiokafka_internals import client_of
from stream.kafka.broker_metadata import LogBounds
from stream.kafka.client_owner import ClientOwner
from stream.kafka.reader import RECORDS_AT_ONCE
from stream.settings import Settings

METADATA_MS: Final = 10_000
"""Metadata refresh interval, which bounds how soon new partitions are found."""
POLL_MS: Final = 200


class TopicSubscription(ClientOwner):
    """Yields the committed records of all partitions of a topic: those that follow, or all of them.

    A partition that is added is read from its beginning, since it was empty when the subscription began.
    aiokafka's own subscriptions without a group would not do: when a partition is added, they lose every
    position, and go on at the ends, missing records, or at the beginnings, repeating all.
    """

    def __init__(
        self,
        settings: Settings,
        topic: str,
        *,
        from_beginning: bool = False,
        report_waiting: Callable[[bool], None] | None = None,
    ) -> None:
        """`report_waiting` is called once, as soon as all existing records are read and new ones are waited
        for. Its argument is whether there were any records at the beginning."""
        self._settings, self._topic, self._from_beginning = settings, topic, from_beginning
        self._report_waiting = report_waiting
        self._bounds: dict[TopicPartition, LogBounds] = {}
        """Log bounds when the subscription began."""
        self._positions: dict[TopicPartition, int] = {}
        """Where to go on. Other partitions are read from their beginning."""
        self._consumer = clients.reader(
            settings, auto_offset_reset="earliest", metadata_max_age_ms=METADATA_MS
        )

    async def _open(self, stack: AsyncExitStack) -> None:
        """Begin at the present ends, unless told otherwise. Raises TopicError and BrokerError."""
        await stack.enter_async_context(clients.open_client(self._settings, self._consumer))
        client = client_of(self._consumer)
        bounds = self._bounds = await broker_metadata.log_bounds(client, [self._topic])
        if not self._from_beginning:
            self._positions = {key: bound.stable for key, bound in bounds.items()}
        self._assign(bounds)

    async def __aiter__(self) -> AsyncIterator[Any]:
        """Yield records, waiting for more."""
        while True:
            numbers = self._consumer.partitions_for_topic(self._topic)  # None while the topic is away
            partitions = {TopicPartition(self._topic, number) for number in numbers or ()}
            if partitions and partitions != self._consumer.assignment():
                self._assign(partitions)
            fetched = await self._consumer.getmany(timeout_ms=POLL_MS, max_records=RECORDS_AT_ONCE)
            if not fetched and self._report_waiting is not None and await self._is_caught_up():
                self._report_waiting(any(bound.start < bound.stable for bound in self._bounds.values()))
                self._report_waiting = None
            for key, records in fetched.items():
                self._positions[key] = records[-1].offset + 1
                for record in records:
                    yield record

    async def _is_caught_up(self) -> bool:
        """Return whether all records are read that existed when the subscription began."""
        partitions = self._consumer.assignment() & self._bounds.keys()
        positions = {key: await self._consumer.position(key) for key in partitions}
        return all(position >= self._bounds[key].stable for key, position in positions.items())

    def _assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._consumer.assign(list(partitions))  # which drops positions
        for key in self._consumer.assignment() & self._positions.keys():
            self._consumer.seek(key, self._positions[key])

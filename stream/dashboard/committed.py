"""Faust's Kafka consumer, made fit for counting: committed records only, and none left out unseen."""

from __future__ import annotations

from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Transport

BEFORE: Final = "before"
"""Header that we add: the offset of the record fetched before this one; none after a seek."""


class _Thread(AIOKafkaConsumerThread):
    def _create_worker_consumer(self, transport: Any) -> AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        # Read when the fetcher starts; Faust sets it for its own transactions only.
        consumer._isolation_level = "read_committed"
        return consumer


class _Consumer(Consumer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._fetched: dict[Any, int] = {}

    def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
        return _Thread(self, loop=self.loop, beacon=self.beacon)

    async def perform_seek(self) -> None:
        """Seek to the committed offsets, with nothing on its way meanwhile.

        Faust clears the queues of its agents afterwards: records that the fetcher put there after the seek
        would be lost, until others behind them are committed, and then for ever. It lets the flow go on
        itself once the queues are cleared.
        """
        self.stop_flow()
        await super().perform_seek()

    async def seek_to_committed(self) -> Any:
        """Seek to the committed offsets; where nothing is committed yet, to the beginning.

        aiokafka leaves the position of such a partition where it is. Records that were fetched during
        recovery, and dropped, would never be read: a dashboard killed before its first commit stood still.
        """
        committed = await super().seek_to_committed()
        never = [tp for tp, offset in committed.items() if not offset and not self._is_changelog_tp(tp)]
        if never:
            await self._thread.seek_to_beginning(*never)
        return committed

    def _to_message(self, tp: Any, record: Any) -> Any:
        message = super()._to_message(tp, record)
        before = self._fetched.get(tp, -1)
        self._fetched[tp] = record.offset
        # Not the difference of offsets: control records and aborted ones leave gaps that are none.
        message.headers = {BEFORE: str(before).encode()} if 0 <= before < record.offset else {}
        return message


class CommittedTransport(Transport):
    """Kafka, read committed."""

    Consumer = _Consumer


def hole(message: Any, last: int | None) -> bool:
    """Whether records between the `last` one given and this one were fetched, but not given."""
    before = message.headers.get(BEFORE)
    return before is not None and int(before) != last

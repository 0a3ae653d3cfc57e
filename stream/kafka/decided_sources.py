"""Reads forwards how far sources are judged, also where the beginning of the decisions was deleted."""

from __future__ import annotations

from stream.errors import StateError, TrimmedLogError
from stream.kafka.outage import retry_until_answered
from stream.kafka.reader import POLL_SECONDS, TopicReader
from stream.messages.decision import SourceProgress, decode_decisions


class DecidedSources:
    """The progress of sources, decision by decision.

    A log that was trimmed starts with a ledger record, which has all sources. So whoever was slower than a
    trim goes on there, and misses nothing.
    """

    def __init__(self, decisions: TopicReader) -> None:
        """Goes on from the position of `decisions`."""
        self.decisions = decisions
        self.needs_ledger = False
        """Whether the next record must be a ledger record."""

    async def begin(self) -> None:
        """Go to the first record of the log. Waits for brokers."""
        at = await retry_until_answered(f"topic {self.decisions.topic}", self.decisions.bounds)
        self.decisions.seek(at.start)
        self.needs_ledger = at.start > 0

    async def poll(self, seconds: float = POLL_SECONDS) -> list[SourceProgress]:
        """Return the progress that the next decisions made, oldest first, waiting for them for at most
        `seconds`; possibly none.

        Raises StateError if the log was trimmed, but does not start with a ledger record.
        """
        try:
            records = await self.decisions.poll(seconds)
        except TrimmedLogError:
            await self.begin()
            return []
        decoded = [(record.offset, decode_decisions(record.value, record.offset)) for record in records]
        if decoded and self.needs_ledger:
            offset, first = decoded[0]
            if not first.begins_ledger:
                raise StateError(
                    f"topic {self.decisions.topic}: starts at {offset}, but not with a ledger record: how far"
                    " sources were judged before is lost; `neardup trim` would not have deleted it"
                )
            self.needs_ledger = False
        return [source for _, each in decoded for source in each.sources]

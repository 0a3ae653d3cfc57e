"""Finds ledger records in the decisions topic, at which its log may start."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Final, NamedTuple

from stream.kafka.open_transactions import ASK_SECONDS
from stream.kafka.outage import Outage, retry_until_answered
from stream.kafka.reader import TopicReader
from stream.messages.decision import Decisions, decode_decisions

FIRST_WINDOW: Final = 64
"""Number of decision records in the first window, read backwards. Each earlier window is twice as large."""


class LedgerRecord(NamedTuple):
    """A ledger record: all sources of the judge, as of a journal offset."""

    offset: int
    """In the decisions topic."""
    end: int
    """The next journal offset to decide."""
    journal: str


async def ledger_at(decisions: TopicReader, offset: int) -> LedgerRecord | None:
    """Return the ledger record at an offset, or None if another record or none is there. Raises StateError if
    the log starts later."""
    async for where, record in records_between(decisions, offset, offset + 1):
        return _ledger(where, record)
    return None


async def last_ledger(decisions: TopicReader, start: int, end: int) -> LedgerRecord | None:
    """Return the last ledger record of [start, end), read backwards as far as needed; None if there is
    none."""
    for first, until in windows_before(start, end):
        last = None
        async for where, record in records_between(decisions, first, until):
            last = _ledger(where, record) or last
        if last is not None:
            return last
    return None


def windows_before(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the windows in which the records of [start, end) are read backwards: where each begins and
    ends."""
    window = FIRST_WINDOW
    while start < end:
        first = max(start, end - window)
        yield first, end
        end, window = first, 2 * window


def _ledger(offset: int, record: Decisions) -> LedgerRecord | None:
    return LedgerRecord(offset, record.end, record.journal) if record.begins_ledger else None


async def records_between(
    decisions: TopicReader, first: int, end: int
) -> AsyncIterator[tuple[int, Decisions]]:
    """Yield the records of [first, end) with their offsets. `end` must not be beyond the end of the log.
    Waits while brokers are unreachable. Raises TrimmedLogError if the log starts later."""
    read_at, outage = time.monotonic(), Outage(f"records of topic {decisions.topic}")
    decisions.seek(first)
    while decisions.position < end:
        before = decisions.position
        for record in await decisions.poll():
            if record.offset < end:
                yield record.offset, decode_decisions(record.value, record.offset)
        if decisions.position > before:
            read_at = time.monotonic()
            outage.end()
            continue
        await retry_until_answered(f"topic {decisions.topic}", decisions.bounds)
        if time.monotonic() - read_at > ASK_SECONDS:
            outage.note(f"its leader answers, but does not deliver offset {before}")

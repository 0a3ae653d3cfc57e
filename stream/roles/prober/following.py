"""What a prober follows: the decisions, from the newest record on, and the journal from where that ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final, NamedTuple

from stream.errors import StaleError, StateError, TrimmedLogError
from stream.judge.batch import Entry
from stream.judge.segments.deaths_decided import DecidedDeaths, deaths_of
from stream.kafka.ledger_search import records_between, windows_before
from stream.kafka.names import TopicNames
from stream.kafka.outage import retry_until_answered
from stream.kafka.reader import (
    RECORDS_AT_ONCE,
    JournalReader,
    RecordReader,
    TopicReader,
    journal_reader,
)
from stream.messages.decision import Decisions, decode_decisions
from stream.messages.journal import Genesis
from stream.roles.prober.schedule import RUN_ROWS
from stream.settings import Settings

WAITING: Final = 64
"""Decision records and runs of journal records that are read before those read earlier are taken."""
PAUSE_SECONDS: Final = 0.1
"""Time between looks for decisions that are not awaited. Where each is a small batch, most of a prober's
requests would be for them."""


class Decided(NamedTuple):
    """A decision record, as far as it concerns probers."""

    end: int
    """The next journal offset to decide."""
    deaths: DecidedDeaths
    decided: int
    """The position in the decisions after it."""
    asks_again: bool
    """Whether a judge may not take what was answered before: it may have begun to lead, or too many anchors
    expired for it to know which."""


class Following:
    """Reads ahead of the caller, who takes what was read."""

    def __init__(
        self, journal: JournalReader, decisions: RecordReader, genesis: Genesis, judged: int
    ) -> None:
        """`judged` is the journal offset up to which the decisions before the reader's position go."""
        self.journal, self.decisions, self.judged = journal, decisions, judged
        self.position = decisions.position
        """The position in the decisions up to which they were taken."""
        self.news: Final = asyncio.Event()
        """Set when there is something to take."""
        self._genesis = genesis
        self._decided: list[Decided] = []
        self._read = self.position
        self._entries: list[Entry] = []
        self._room = asyncio.Event()

    def take_decided(self) -> list[Decided]:
        """Return the next decision records, possibly none."""
        taken, self._decided = self._decided, []
        self.position = self._read
        return taken

    def take_entries(self) -> list[Entry]:
        """Return the next journal records, possibly none."""
        taken, self._entries = self._entries, []
        return taken

    def note_room(self) -> None:
        """Note that there may be room for more. Called after something was taken."""
        self._room.set()

    async def follow_decisions(self, are_awaited: Callable[[], bool]) -> None:
        """Read decisions, for ever: as they come if they are awaited, else several at once. Raises StaleError
        if they were trimmed meanwhile."""
        with _restarted():
            while True:
                await self._wait(lambda: len(self._decided) < WAITING)
                records = await self.decisions.poll()
                self._decided += [
                    decode_decided(record.value, record.offset, self._genesis) for record in records
                ]
                if self.decisions.position > self._read:
                    self._read = self.decisions.position
                    self.news.set()
                if len(records) < RECORDS_AT_ONCE and not are_awaited():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(PAUSE_SECONDS):
                            await self._wait(are_awaited)

    async def follow_journal(self, room: Callable[[], int]) -> None:
        """Read the journal, for ever, as far as there is room for further rows. Raises StaleError if it was
        trimmed meanwhile."""
        with _restarted():
            while True:
                await self._wait(lambda: room() > 0 and not self._entries)
                self._entries += await self.journal.next_rows(RUN_ROWS)
                if self._entries:
                    self.news.set()

    async def _wait(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._room.clear()
            await self._room.wait()


@asynccontextmanager
async def open_following(settings: Settings, genesis: Genesis) -> AsyncIterator[Following]:
    """Begin at the newest decision record, and at the first journal record that is not decided. Waits while
    brokers are unreachable. Raises StaleError if logs are trimmed meanwhile."""
    with _restarted():
        async with TopicReader(settings, TopicNames(settings.namespace).decisions, 0) as decisions:
            newest = await _newest(decisions, genesis)
            judged = newest.end if newest else 0
            async with journal_reader(settings, judged, genesis) as journal:
                yield Following(journal, decisions, genesis, judged)


async def _newest(decisions: TopicReader, genesis: Genesis) -> Decided | None:
    """Return the newest decision record, if there is any, and let the reader go on behind it."""
    start, end = await retry_until_answered(f"topic {decisions.topic}", decisions.bounds)
    newest = None
    for first, until in windows_before(start, end):
        async for offset, record in records_between(decisions, first, until):
            newest = _of(record, offset, genesis)
        if newest is not None:
            break
    decisions.seek(newest.decided if newest else start)
    return newest


def decode_decided(value: bytes, offset: int, genesis: Genesis) -> Decided:
    """Decode the record at `offset` of the decisions. Raises RecordError, and StateError for one of another
    journal."""
    return _of(decode_decisions(value, offset), offset, genesis)


def _of(record: Decisions, offset: int, genesis: Genesis) -> Decided:
    if record.journal != genesis.journal:
        raise StateError(f"decisions offset {offset}: is of journal {record.journal}, not {genesis.journal}")
    asks_again = record.begins_ledger or record.turn is not None
    return Decided(record.end, deaths_of(record), offset + 1, asks_again)


@contextmanager
def _restarted() -> Iterator[None]:
    """Convert the error of a log that was trimmed beyond the place where it is read. Another process begins
    at its end."""
    try:
        yield
    except TrimmedLogError as error:
        raise StaleError(f"{error}: it was trimmed meanwhile") from error

"""Loads fingerprinted pages into the journal of a deployment, in their order (rule 21)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Final

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

from stream.failpoints import reach
from stream.judge.state.ledger import key_of
from stream.kafka import acl_check, clients, topics
from stream.kafka.decided_positions import last_expected
from stream.kafka.decided_sources import DecidedSources
from stream.kafka.in_flight import in_thread
from stream.kafka.journal_producer import open_journal_producer
from stream.kafka.names import TopicNames
from stream.kafka.reader import POLL_SECONDS, TopicReader
from stream.messages.journal import Corpus, Genesis
from stream.roles.loader.limits import MAX_LAG, WINDOW
from stream.roles.loader.live_lag import live_lag
from stream.roles.loader.records import LoadedRecord, LoadedSource, records
from stream.roles.loader.resume import JudgedRows
from stream.roles.loader.turn import LoadTurn
from stream.settings import Settings
from stream.sources.rows import RowsSource
from stream.text.surrogates import replace_surrogates

GENESIS_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 1.0
"""Interval of looking at the live pages."""
PROGRESS_SECONDS: Final = 5.0

log = structlog.get_logger(__name__, role="load")


@dataclass(slots=True)
class LoadProgress:
    """How far a load has come."""

    rows: int
    """Rows of the corpus."""
    judged_before: int = 0
    """Rows that were judged before this run."""
    appended: int = 0
    """Rows in the journal."""
    judged: int = 0
    """Rows with a verdict."""
    lag: int | None = None
    """Live pages that wait for workers, if known."""
    waits_for: str | None = None
    """Why nothing is appended at present."""
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Rows judged a second, in this run."""
        return (self.judged - self.judged_before) / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Time until the end at this rate."""
        return (self.rows - self.judged) / self.rate if self.rate else None


@clients.with_translated_errors
async def load(
    settings: Settings,
    rows: RowsSource,
    loading: LoadProgress | None = None,
    *,
    max_lag: int = MAX_LAG,
    abandon: bool = False,
) -> LoadProgress:
    """Append all rows to the journal and wait for their verdicts. Called again after it was killed, it goes
    on behind the last row that was judged.

    It pauses while more than `max_lag` live pages wait for workers, and while WINDOW rows wait for the judge.
    `loading` is kept up to date. Raises SchemeMismatchError and SettingsError for rows that do not fit the
    journal, RefusedError while another process loads, or if one of other rows has not ended (unless
    `abandon`), RowsError for damaged rows, StateError if the decisions do not say any more whether these rows
    were judged, and StaleError if another process began to load because this one did not answer.
    """
    names = TopicNames(settings.namespace)
    loading = LoadProgress(rows.count) if loading is None else loading
    genesis = await topics.wait_for_genesis(settings, GENESIS_SECONDS)
    rows.refuse_misfits(genesis.scheme)
    await topics.check(settings, "load")
    await acl_check.check(settings, "load")
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        turn = await enter(LoadTurn(settings, names))
        await turn.come()
        admin = await enter(clients.open_client(settings, clients.admin(settings)))
        decisions = await enter(TopicReader(settings, names.decisions, 0))
        end = (await decisions.settled_bounds()).end
        source = LoadedSource(rows.digest, Corpus(replace_surrogates(rows.name), rows.count))
        judged = JudgedRows(source)
        judged.note(await last_expected(decisions, judged.sources))
        loading.judged_before = loading.appended = loading.judged = judged.rows
        decisions.seek(end)
        if judged.rows == loading.rows:
            await turn.end(source)
            return loading
        await turn.begin(source, abandon=abandon)
        log.info(
            "loading",
            name=rows.name,
            digest=rows.digest,
            rows=loading.rows,
            judged_before=loading.judged_before,
        )
        producer = await enter(open_journal_producer(settings))
        await _Loader(
            genesis,
            names,
            rows,
            source,
            judged,
            loading,
            turn,
            DecidedSources(decisions),
            admin,
            producer,
            max_lag,
        ).run()
    return loading


@dataclass(slots=True)
class _Loader:
    genesis: Genesis
    names: TopicNames
    rows: RowsSource
    source: LoadedSource
    judged: JudgedRows
    loading: LoadProgress
    turn: LoadTurn
    decided: DecidedSources
    admin: AIOKafkaAdminClient
    producer: AIOKafkaProducer
    max_lag: int

    async def run(self) -> None:
        """Append and follow the verdicts until every row has one."""
        loading, began = self.loading, time.monotonic()
        last_look = last_report = began - LOOK_SECONDS
        async with aclosing(self._records()) as coming:
            record = await anext(coming, None)
            while loading.judged < loading.rows:
                await self.turn.hold()
                now = time.monotonic()
                loading.seconds = now - began
                if now - last_look >= LOOK_SECONDS:
                    last_look, loading.lag = now, await live_lag(self.admin, self.names)
                loading.waits_for = self._waits_for(record)
                if now - last_report >= PROGRESS_SECONDS:
                    last_report = now
                    self._tell()
                if record is None or loading.waits_for:
                    await self._follow(POLL_SECONDS)
                    continue
                await self._append(record)
                record = await anext(coming, None)
                await self._follow(0)
        self._tell()
        await self.turn.end(self.source)

    async def _append(self, record: LoadedRecord) -> None:
        """Append a record. One at a time, as in rule 2: an idempotent producer would accept one behind a
        refused one."""
        reach("load.before_append")
        async with clients.acknowledgement_limit(f"topic {self.names.journal}"):
            await self.producer.send_and_wait(self.names.journal, record.value, partition=0)
        self.loading.appended = record.end
        reach("load.appended_all" if record.end == self.loading.rows else "load.append")

    async def _follow(self, seconds: float) -> None:
        """Note which rows are judged, waiting for news for at most this long."""
        progress = await self.decided.poll(seconds)
        self.judged.note({key_of(each): each.expected for each in progress})
        self.loading.judged = self.judged.rows

    def _waits_for(self, record: LoadedRecord | None) -> str | None:
        loading = self.loading
        waiting = loading.appended - loading.judged
        if record is None or waiting > WINDOW:
            return f"the judge: {waiting:,} rows are not judged"
        if loading.lag is None:
            return "live pages: how many wait for workers is not known at present"
        if loading.lag > self.max_lag:
            return f"live pages: {loading.lag:,} wait for workers, at most {self.max_lag:,} may (--max-lag)"
        return None

    async def _records(self) -> AsyncGenerator[LoadedRecord, None]:
        """Yield the records to append. The next one is made in a thread while one is appended."""
        scheme, start = self.genesis.scheme, self.loading.judged_before
        rows = self.rows.placed(scheme, start)
        coming = records(self.source, scheme, rows, start)
        making = asyncio.create_task(in_thread(next, coming, None))
        try:
            while (record := await making) is not None:
                making = asyncio.create_task(in_thread(next, coming, None))
                yield record
        finally:
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)

    def _tell(self) -> None:
        loading = self.loading
        left = loading.seconds_left
        log.info(
            "progress",
            judged=loading.judged,
            rows=loading.rows,
            rows_per_second=round(loading.rate),
            seconds_left=None if left is None else round(left),
            live_lag=loading.lag,
            waits_for=loading.waits_for,
        )

"""The judge: journal -> verdicts, exactly once.

It follows what was decided, leads when the group gives it the journal, and ends on any error: whatever it
had not made durable is applied again from journal and decisions by the next one (rules 7 to 13).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from typing import Final

import structlog

from stream.errors import StaleError, StateError
from stream.failpoints import reach
from stream.judge.batch import Entry
from stream.judge.decide import MOST, Effort
from stream.judge.judged_batch import Decided
from stream.judge.ledger import Ledger, SourceGap, SourceKey
from stream.judge.rehearse import rehearse
from stream.judge.state import Prepared, State
from stream.kafka import clients, record_batches, topics
from stream.kafka.away import answered
from stream.kafka.election import Election
from stream.kafka.follower import Follower, opened_follower
from stream.kafka.in_flight import Transaction, in_thread
from stream.kafka.judge_transaction import Publisher
from stream.kafka.judge_watch import JudgeWatch
from stream.kafka.member import member_id
from stream.kafka.names import Names
from stream.kafka.runtime_tuning import made_for_batches
from stream.kafka.scrubs import Scrubs
from stream.kafka.verdict_batches import PartitionBatch
from stream.messages.decision import Decisions
from stream.messages.journal import Genesis
from stream.ops.server import ops_server
from stream.ops.signals import entered_unless_stopped, stop_event_on_signals, unless_stopped
from stream.settings import Settings

log = structlog.get_logger()

AHEAD: Final = 0.5
"""Share of a whole batch that must wait before it is decided beside the transaction of the one before. With
less, waiting for the end costs no throughput, and batches are larger.
"""


@dataclass(slots=True)
class JudgeStats:
    """What this process did since it started."""

    verdicts: Counter[str] = field(default_factory=Counter)
    transactions: int = 0
    redelivered: int = 0
    gaps: dict[SourceKey, SourceGap] = field(default_factory=dict)
    """Sources that wait for missing pages now, each with the first gap that was met."""

    def fields(self, state: State) -> dict[str, object]:
        """For the log."""
        return {
            "verdicts": dict(self.verdicts),
            "transactions": self.transactions,
            "redelivered": self.redelivered,
            "source_gaps": len(self.gaps),
            "applied": state.meta.applied,
            "anchors": state.tables.count,
            "rocksdb_probes": state.tables.stats.rocks_probes,
        }


class JudgeRole:
    """One judge process; leads or stands by."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.names = settings, Names(settings.namespace)
        self._stop = asyncio.Event()
        self.stats = JudgeStats()
        self._flushed, self._flushed_at = 0, 0.0
        self._flushing: asyncio.Task[None] | None = None
        self.watch = JudgeWatch()
        self._directory = settings.state_dir / settings.namespace / "judge"
        self._scrubs = Scrubs(self._directory, settings.scrub_hours, self.watch.scrubbed)
        self.ops_url: str | None = None
        """Where its metrics and health are served."""

    def stop(self) -> None:
        """Ask `run` to finish its batch and return."""
        self._stop.set()

    async def run(self) -> None:
        """Judge until SIGTERM, SIGINT or `stop()`. Any error ends it: start again, nothing is lost."""
        with made_for_batches(), stop_event_on_signals(self._stop), clients.explained_errors():
            async with ops_server(self.settings, self.watch.metrics, self.watch.health) as self.ops_url:
                await self._run()

    async def _run(self) -> None:
        settings, watch = self.settings, self.watch
        with watch.health.excused("waiting for the genesis"):
            genesis = await unless_stopped(self._stop, self._genesis_of_sound_topics())
        if genesis is None:
            return
        directory = self._directory
        with watch.health.excused("compiling"):
            await asyncio.to_thread(rehearse, genesis)
            await asyncio.to_thread(record_batches.rehearse)
        opening = watch.opened(opened_follower(settings, genesis, directory))
        async with entered_unless_stopped(self._stop, opening) as follower:
            if follower is not None:
                async with self._flushes(follower.state), self._scrubs.beside():
                    await self._stand_by(genesis, follower, member_id(directory.with_suffix(".instance")))
                log.info("stopped", **self.stats.fields(follower.state))

    async def _stand_by(self, genesis: Genesis, follower: Follower, instance: str) -> None:
        """Follow the judge that leads, until this one does."""
        settings, names, watch = self.settings, self.names, self.watch
        await unless_stopped(self._stop, follower.follow_to_end())
        joining = watch.joined(Election(settings, names.judge, names.journal, instance))
        async with entered_unless_stopped(self._stop, joining) as election:
            if election is None:
                return
            watch.stands_by(election)
            log.info("standby", applied=follower.state.meta.applied)
            while not election.won.is_set() and not self._stop.is_set():
                await election.attend()
                await unless_stopped(self._stop, follower.follow())
                self._flush_if_due(follower.state)
                self._scrubs.refuse_damage()
            if not self._stop.is_set():
                await self._lead(genesis, follower, election)

    async def _genesis_of_sound_topics(self) -> Genesis:
        """Wait for the genesis (rule 6); refuse another behaviour, and topics that break exactly-once."""
        genesis = await topics.wait_for_genesis(self.settings)
        await answered("a broker", lambda: topics.check(self.settings, "judge"))
        return genesis

    async def _lead(self, genesis: Genesis, follower: Follower, election: Election) -> None:
        """The loop: poll, decide, publish, apply."""
        watch = self.watch
        fencing = watch.joined(Publisher(self.settings, self.names, genesis.scheme_id))
        async with entered_unless_stopped(self._stop, fencing) as publisher:
            if publisher is None:
                return
            # Only now is the end of the decisions final: our producer id ended every earlier transaction.
            await unless_stopped(self._stop, follower.follow_to_end())
            if self._stop.is_set():
                return
            judge, journal = follower.judge, follower.journal
            before = await election.judged_before()
            if not judge.state.meta.decided and before > judge.state.meta.applied:
                raise StateError(
                    f"topic {self.names.decisions} is empty, but the journal was judged up to {before}: it "
                    "was made again; judging from the start would repeat every verdict; restore it, or use "
                    "another namespace"
                )
            election.judged(judge.state.meta.applied)  # the judge before may not have come to say so
            watch.leads(journal)
            log.info("leading", applied=judge.state.meta.applied)
            async with Transaction() as transaction:
                while not self._stop.is_set():
                    watch.health.turn()
                    if election.lost.is_set():
                        raise StaleError(
                            "another judge leads now; this one ends and stands by when restarted"
                        )
                    await election.attend()
                    if journal.rows_waiting < self.settings.judge_rows * AHEAD:
                        await transaction.ended()
                    entries = await journal.next_rows(self.settings.judge_rows)
                    if entries:
                        await self._judge(entries, follower, publisher, transaction, election)
                    self._flush_if_due(judge.state)
                    self._scrubs.refuse_damage()
                await transaction.ended()

    async def _judge(
        self,
        entries: list[Entry],
        follower: Follower,
        publisher: Publisher,
        transaction: Transaction,
        election: Election,
    ) -> None:
        """Decide a batch while the one before is published, and begin to publish it; what would take too long
        goes back to the journal's reader."""
        watch, stack, judge = self.watch, contextlib.ExitStack(), follower.judge
        stack.enter_context(watch.batch(entries))

        def prepare() -> tuple[Decisions, Prepared]:
            decisions = decided.record()
            return decisions, judge.prepare(entries, decisions, decided.batch)

        def advance() -> None:
            judge.state.tables.maintain()
            judge.state.advance(prepared)

        async def encode() -> list[PartitionBatch]:
            with watch.stage("encode"):
                return await publisher.encode(decided)

        async def publish() -> None:
            with stack:
                with watch.stage("publish"):
                    end = await publisher.publish(decided, decisions, await encoding)
                await advancing
                with watch.stage("apply"):
                    await in_thread(judge.state.write, prepared, end)
            election.judged(entries[-1].offset + 1)
            self._note(decided, judge.state.ledger)

        # In a thread: spam can keep it busy for seconds, and the loop keeps the judge alive.
        with watch.stage("decide"):
            decided = await in_thread(judge.decide, entries, Effort(MOST, watch.health.turn))
        follower.journal.give_back(entries[len(decided.entries) :])
        del entries[len(decided.entries) :]
        # Beside each other: preparing what is written needs the GIL, encoding what is published hardly does.
        encoding = asyncio.create_task(encode())
        try:
            with watch.stage("prepare"):
                decisions, prepared = await in_thread(prepare)
            if transaction.under_way:
                reach("judge.ahead")
                await transaction.ended()
        except BaseException:
            encoding.cancel()
            await asyncio.gather(encoding, return_exceptions=True)
            raise
        advancing = asyncio.create_task(in_thread(advance))
        transaction.begin(publish())
        await advancing

    def _note(self, decided: Decided, ledger: Ledger) -> None:
        """Count, and speak up about gaps."""
        stats = self.stats
        stats.transactions += 1
        stats.redelivered += decided.admission.redelivered
        stats.verdicts.update(decided.counts)
        for gap in decided.admission.gaps:
            if stats.gaps.get(gap.source, gap).expected != gap.expected:
                del stats.gaps[gap.source]  # an earlier one, which healed within this batch
            if gap.source not in stats.gaps:
                stats.gaps[gap.source] = gap
                self.watch.metrics.gaps_met.inc()
                log.error("source_gap", message=str(gap), **asdict(gap))
        for gap in list(stats.gaps.values()):
            if not ledger.waits(gap):
                del stats.gaps[gap.source]
                log.info("source_gap_healed", **asdict(gap))
        self.watch.judged(decided, len(stats.gaps))

    def _flush_if_due(self, state: State) -> None:
        """Make the state durable now and then, beside the loop; a failed flush ends the judge."""
        if self._flushing is not None:
            if not self._flushing.done():
                return
            self._flushing.result()
            self._flushing = None
        applied = state.meta.applied
        if applied > self._flushed and time.monotonic() - self._flushed_at > self.settings.flush_seconds:
            self._flushed, self._flushed_at = applied, time.monotonic()
            log.info("progress", **self.stats.fields(state))
            self._flushing = asyncio.create_task(asyncio.to_thread(self._flush, state))

    def _flush(self, state: State) -> None:
        with self.watch.stage("flush"):
            state.flush()
        self.watch.flushed(state)

    @contextlib.asynccontextmanager
    async def _flushes(self, state: State) -> AsyncIterator[None]:
        """No flush outlives the state it flushes."""
        self._flushed, self._flushed_at = state.meta.applied, time.monotonic()
        try:
            yield
        finally:
            if self._flushing is not None:
                await asyncio.wait([self._flushing])

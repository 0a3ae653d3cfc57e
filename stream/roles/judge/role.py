"""The judge role: decides the journal and publishes verdicts, exactly once.

It follows the decisions as a standby, leads when the group assigns it the journal, and ends on any error.
Whatever it had not flushed is applied again from journal and decisions by the next process (rules 7 to 13).
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Final

import structlog

from stream.checkpoints.kinds import JUDGE
from stream.checkpoints.periodic import Checkpoints
from stream.errors import StaleError, StateError
from stream.failpoints import reach
from stream.judge.batch_rows import BatchRows
from stream.judge.rehearse import rehearse
from stream.judge.state.state import State
from stream.kafka import acl_check, clients, record_batches, topics
from stream.kafka.election import Election
from stream.kafka.follower import Follower, open_follower
from stream.kafka.in_flight import TransactionInFlight
from stream.kafka.member import member_id
from stream.kafka.names import TopicNames
from stream.kafka.outage import retry_until_answered
from stream.kafka.scrubs import Scrubs
from stream.messages.journal import Genesis
from stream.ops.runtime_tuning import batch_process_tuning
from stream.ops.server import ops_server
from stream.ops.signals import enter_unless_stopped, run_unless_stopped, stop_event_on_signals
from stream.roles.judge.batch_in_flight import BatchInFlight
from stream.roles.judge.flushes import Flushes
from stream.roles.judge.forgetting import forget_requests
from stream.roles.judge.ledger_records import LedgerRecords
from stream.roles.judge.stats import JudgeStats
from stream.roles.judge.transaction import VerdictPublisher
from stream.roles.judge.turns import Turns
from stream.roles.judge.watch import JudgeWatch
from stream.settings import Settings

log = structlog.get_logger()

AHEAD: Final = 0.5
"""Share of a full batch that must be queued for it to be decided while the previous transaction is in flight.
With less, waiting for the end of the transaction costs no throughput and makes batches larger."""


class JudgeRole:
    """One judge process, which leads or stands by."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.names = settings, TopicNames(settings.namespace)
        self._stop = asyncio.Event()
        self.stats = JudgeStats()
        self.watch = JudgeWatch()
        self._flushes = Flushes(settings.flush_seconds, self.stats, self.watch)
        self._directory = settings.state_dir / settings.namespace / JUDGE
        self._scrubs = Scrubs(self._directory, settings.scrub_hours, self.watch.note_scrub)
        self._checkpoints = Checkpoints(settings, JUDGE, self._directory, self.watch.metrics)
        self.ops_url: str | None = None
        """Where its metrics and health are served."""

    def stop(self) -> None:
        """Ask `run` to finish the current batch and return."""
        self._stop.set()

    async def run(self) -> None:
        """Judge until SIGTERM, SIGINT or `stop()`. Any error is raised; the recovery is a restart, nothing is
        lost."""
        with batch_process_tuning(), stop_event_on_signals(self._stop), clients.translated_errors():
            async with ops_server(self.settings, self.watch.metrics, self.watch.health) as self.ops_url:
                await self._run()

    # The loop: poll, decide, publish, apply.

    async def _judge_on(self, follower: Follower, publisher: VerdictPublisher, election: Election) -> None:
        """Judge records as they arrive. While one batch is being published, the next one is decided."""
        journal, state, size = follower.journal, follower.state, BatchRows(self.settings.judge_rows)
        ledger = LedgerRecords(self.settings.checkpoint_interval, follower.judge, publisher, self.watch)
        turns = Turns(follower.judge, publisher, self.watch)
        requests = forget_requests(self.settings, follower.judge, publisher, self.watch)
        async with requests as forgetting, TransactionInFlight() as transaction:
            while not self._stop.is_set():
                self.watch.health.turn()
                if election.lost.is_set():
                    raise StaleError("another judge leads now; this one ends and stands by when restarted")
                await election.attend()
                if journal.waiting_share(size.limit) < AHEAD:
                    await transaction.finish()
                entries = await journal.next_rows(size.limit)
                if entries and turns.is_due(entries[0]):
                    journal.give_back(entries)
                    await transaction.finish()
                    await turns.publish(entries[0])
                elif entries:
                    cap = turns.cap(entries[0])
                    async with BatchInFlight(entries, follower.judge, publisher, self.watch, cap) as batch:
                        began = time.perf_counter()
                        journal.give_back(await batch.decide())
                        await batch.prepare()
                        size.note(len(batch.decided.batch), time.perf_counter() - began)
                        if transaction.is_in_flight:
                            reach("judge.ahead")
                            await transaction.finish()
                        await batch.publish(transaction, partial(self._committed, batch, state, election))
                request = self._checkpoints.request()
                if ledger.is_due(request):
                    await transaction.finish()
                    await ledger.publish(request)
                await forgetting.attend()
                if forgetting.is_due:
                    await transaction.finish()
                    await forgetting.decide()
                if follower.erasing.is_due:
                    await transaction.finish()
                    await follower.erasing.attend()
                self._attend(state, request)
            await transaction.finish()

    def _attend(self, state: State, request: str | None) -> None:
        """Attend to what runs beside the loop. `request` names the request for a checkpoint that waits."""
        self._flushes.begin_if_due(state)
        self._scrubs.refuse_damage()
        self._checkpoints.begin_if_due(state, request)

    def _committed(self, batch: BatchInFlight, state: State, election: Election) -> None:
        """Report a batch whose verdicts are published and whose state is written."""
        election.note_judged(batch.entries[-1].offset + 1)
        self.watch.metrics.gaps_met.inc(self.stats.add(batch.decided, state.ledger))
        self.watch.note_batch(batch.decided, len(self.stats.gaps))

    # From the start of the process to the loop.

    async def _run(self) -> None:
        settings, watch = self.settings, self.watch
        with watch.health.excuse("waiting for the genesis"):
            genesis = await run_unless_stopped(self._stop, self._checked_genesis())
        if genesis is None:
            return
        directory = self._directory
        with watch.health.excuse("compiling"):
            await asyncio.to_thread(rehearse, genesis)
            await asyncio.to_thread(record_batches.rehearse)
        opening = watch.opened(open_follower(settings, genesis, directory, restore=True))
        async with enter_unless_stopped(self._stop, opening) as follower:
            if follower is not None:
                instance = member_id(directory.with_suffix(".instance"))
                async with (
                    self._flushes.beside(follower.state),
                    self._scrubs.beside(),
                    self._checkpoints.beside(instance),
                ):
                    await self._stand_by(genesis, follower, instance)
                log.info("stopped", **self.stats.fields(follower.state))

    async def _stand_by(self, genesis: Genesis, follower: Follower, instance: str) -> None:
        """Follow the leading judge until this one is elected, then lead."""
        settings, names, watch = self.settings, self.names, self.watch
        await run_unless_stopped(self._stop, follower.follow_to_stable())
        joining = watch.join(Election(settings, names.judge, names.journal, instance))
        async with enter_unless_stopped(self._stop, joining) as election:
            if election is None:
                return
            watch.stands_by(election)
            log.info("standby", applied=follower.state.meta.applied)
            while not election.won.is_set() and not self._stop.is_set():
                await election.attend()
                await run_unless_stopped(self._stop, follower.follow())
                self._attend(follower.state, self._checkpoints.request())
            if not self._stop.is_set():
                await self._lead(genesis, follower, election)

    async def _checked_genesis(self) -> Genesis:
        """Wait for the genesis, and refuse another scheme version (rule 6) or topics that break
        exactly-once."""
        genesis = await topics.wait_for_genesis(self.settings)
        await retry_until_answered("a broker", lambda: topics.check(self.settings, "judge"))
        # What reads `clusters` would retry a denied read for ever.
        await retry_until_answered("a broker", lambda: acl_check.check(self.settings, "judge"))
        return genesis

    async def _lead(self, genesis: Genesis, follower: Follower, election: Election) -> None:
        """Fence the previous leader, apply its last decisions, and judge."""
        watch = self.watch
        fencing = watch.join(VerdictPublisher(self.settings, self.names, genesis.scheme_id))
        async with enter_unless_stopped(self._stop, fencing) as publisher:
            if publisher is None:
                return
            # The end of the decisions is final only now that our producer has ended all earlier transactions
            # of judges, and once none of another program hides what these committed.
            await run_unless_stopped(self._stop, follower.follow_to_end())
            if self._stop.is_set():
                return
            judge, journal = follower.judge, follower.journal
            before = await election.committed_offset()
            if before > judge.state.meta.applied:
                raise StateError(
                    f"topic {self.names.decisions} decides the journal up to {judge.state.meta.applied}, but "
                    f"group {self.names.judge} has judged it up to {before}: the topic was recreated, or it "
                    "lost records, and judging again would repeat verdicts; restore it, or use another "
                    "namespace"
                )
            election.note_judged(judge.state.meta.applied)  # the previous leader may not have committed it
            watch.note_leading(journal)
            log.info("leading", applied=judge.state.meta.applied)
            await self._judge_on(follower, publisher, election)

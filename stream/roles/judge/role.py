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
from stream.errors import StaleError, StateError
from stream.failpoints import reach
from stream.judge.batch_rows import BatchRows
from stream.judge.rehearse import rehearse
from stream.judge.state.state import State
from stream.kafka import record_batches
from stream.kafka.election import Election
from stream.kafka.in_flight import TransactionInFlight
from stream.kafka.member import member_id
from stream.messages.journal import Genesis
from stream.roles.judge.batch_in_flight import BatchInFlight
from stream.roles.judge.forgetting import forget_requests
from stream.roles.judge.ledger_records import LedgerRecords
from stream.roles.judge.stats import JudgeStats
from stream.roles.judge.transaction import VerdictPublisher
from stream.roles.judge.turns import Turns
from stream.roles.judge.watch import JudgeWatch
from stream.roles.role import Role
from stream.settings import Settings
from stream.states.follower import JudgeFollower, open_follower
from stream.states.upkeep import Upkeep

log = structlog.get_logger()

AHEAD: Final = 0.5
"""Share of a full batch that must be queued for it to be decided while the previous transaction is in flight.
With less, waiting for the end of the transaction costs no throughput and makes batches larger."""


class JudgeRole(Role[JudgeWatch]):
    """One judge process, which leads or stands by."""

    topics, grants, handles_batches = "judge", "judge", True

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, JudgeWatch())
        self.stats = JudgeStats()
        self._directory = settings.state_dir / settings.namespace / JUDGE
        self._upkeep = Upkeep(settings, JUDGE, self._directory, self.watch.metrics, self._report)

    # The loop: poll, decide, publish, apply.

    async def _judge_on(
        self, follower: JudgeFollower, publisher: VerdictPublisher, election: Election
    ) -> None:
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
                request = self._upkeep.request()
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
                self._upkeep.attend(request)
            await transaction.finish()

    def _committed(self, batch: BatchInFlight, state: State, election: Election) -> None:
        """Report a batch whose verdicts are published and whose state is written."""
        election.note_judged(batch.entries[-1].offset + 1)
        self.watch.metrics.gaps_met.inc(self.stats.add(batch.decided, state.ledger))
        self.watch.note_batch(batch.decided, len(self.stats.gaps))

    # From the start of the process to the loop.

    async def _work(self, genesis: Genesis) -> None:
        """Judge until the role is to end."""
        settings, watch = self.settings, self.watch
        with watch.health.excuse("compiling"):
            await asyncio.to_thread(rehearse, genesis)
            await asyncio.to_thread(record_batches.rehearse)
        opening = watch.opened(open_follower(settings, genesis, self._directory, restore=True))
        async with self._entered(opening) as follower:
            if follower is not None:
                instance = member_id(self._directory.with_suffix(".instance"))
                self._follower = follower
                async with self._upkeep.beside(follower.state):
                    await self._stand_by(genesis, follower, instance)
                log.info("stopped", **self.stats.fields(follower.state))

    def _report(self) -> None:
        """Report progress, before each flush."""
        log.info("progress", **self.stats.fields(self._follower.state))
        self.watch.note_probes(self._follower.state)

    async def _stand_by(self, genesis: Genesis, follower: JudgeFollower, instance: str) -> None:
        """Follow the leading judge until this one is elected, then lead."""
        settings, names, watch = self.settings, self.names, self.watch
        await self._unless_stopped(follower.follow_to_stable())
        election = Election(settings, names.judge, names.journal, instance)
        async with self._entered(watch.excused("waiting for brokers", election)) as entered:
            if entered is None:
                return
            watch.stands_by(election)
            log.info("standby", applied=follower.state.meta.applied)
            while not election.won.is_set() and not self._stop.is_set():
                await election.attend()
                await self._unless_stopped(follower.follow())
                self._upkeep.attend(self._upkeep.request())
            if not self._stop.is_set():
                await self._lead(genesis, follower, election)

    async def _lead(self, genesis: Genesis, follower: JudgeFollower, election: Election) -> None:
        """Fence the previous leader, apply its last decisions, and judge."""
        watch = self.watch
        fencing = VerdictPublisher(self.settings, self.names, genesis.scheme_id)
        async with self._entered(watch.excused("waiting for brokers", fencing)) as publisher:
            if publisher is None:
                return
            # The end of the decisions is final only now that our producer has ended all earlier transactions
            # of judges, and once none of another program hides what these committed.
            before = await election.committed_offset()  # first: another leader may go on meanwhile
            await self._unless_stopped(follower.follow_to_end())
            if self._stop.is_set():
                return
            judge, journal = follower.judge, follower.journal
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

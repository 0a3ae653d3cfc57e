"""The elector role: follows journal and decisions, and tells which page of each cluster is kept.

Records are committed before the state notes them. A process that was killed between leaves a topic that knows
more than the state; the next one reads it, and tells nothing that the topic has.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Set
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import structlog

from stream.checkpoints.periodic import Checkpoints
from stream.elector.elector import Elector
from stream.elector.judged_pages import Decided
from stream.elector.state import State, kind_of_elector
from stream.errors import SettingsError, StateError
from stream.failpoints import reach
from stream.judge.batch import BATCH_BYTES
from stream.judge.ids import NO_PAGE, show
from stream.kafka import acl_check, clients, topics
from stream.kafka.in_flight import in_thread
from stream.kafka.member import member_id
from stream.kafka.names import TopicNames
from stream.kafka.opened_state import OpenedState, StateDirectory, open_at_position
from stream.kafka.outage import retry_until_answered
from stream.kafka.reader import SHORT_SECONDS, JournalReader, RecordReader
from stream.kafka.scrubs import Scrubs
from stream.messages.decision import decode_decisions
from stream.messages.journal import Genesis
from stream.ops.runtime_tuning import batch_process_tuning
from stream.ops.server import ops_server
from stream.ops.signals import enter_unless_stopped, run_unless_stopped, stop_event_on_signals
from stream.roles.elector.best_topic import NOWHERE, BestTopic
from stream.roles.elector.watch import ElectorWatch
from stream.settings import Settings

log = structlog.get_logger(__name__)

BATCH_ROWS: Final = 16_384
"""Rows applied at once."""
TOLD_AT_ONCE: Final = 4096
"""Records in one transaction."""
_WHEN_FENCED: Final = (
    "this one ends, and would end the other when restarted: run one elector of a name, or give each an"
    " elector_name"
)


class ElectorRole:
    """One elector process."""

    def __init__(self, settings: Settings) -> None:
        """Raises SettingsError without a policy."""
        if not settings.elect:
            raise SettingsError(
                "elect: name a policy, by which the page of each cluster that is kept is chosen"
            )
        self.settings, self.names = settings, TopicNames(settings.namespace)
        self._stop = asyncio.Event()
        self.watch = ElectorWatch()
        self._kind = kind_of_elector(settings.elector_name)
        self._directory = settings.state_dir / settings.namespace / self._kind
        self._scrubs = Scrubs(self._directory, settings.scrub_hours, self.watch.note_scrub)
        self._checkpoints = Checkpoints(settings, self._kind, self._directory, self.watch.metrics)
        self.ops_url: str | None = None
        """Where its metrics and health are served."""
        self._next_election = self._next_flush = 0.0
        self._flushed = 0
        self._short_since: float | None = None
        """Since when the decisions end before what was told; None if they do not."""

    def stop(self) -> None:
        """Ask `run` to finish the current batch and return."""
        self._stop.set()

    async def run(self) -> None:
        """Elect until SIGTERM, SIGINT or `stop()`. Any error is raised; the recovery is a restart."""
        translated = clients.translated_errors(when_fenced=_WHEN_FENCED)
        with batch_process_tuning(), stop_event_on_signals(self._stop), translated:
            async with ops_server(self.settings, self.watch.metrics, self.watch.health) as self.ops_url:
                await self._run()

    # The loop: poll, apply, elect, flush.

    async def _elect_on(
        self, elector: Elector, journal: JournalReader, decisions: RecordReader, topic: BestTopic
    ) -> None:
        """Apply decisions as they arrive, and tell at times what is due."""
        has_caught_up = False
        self._next_election = time.monotonic() + self.settings.elect_seconds
        while not self._stop.is_set():
            self.watch.health.turn()
            await run_unless_stopped(self._stop, self._follow(elector, journal, decisions))
            if not has_caught_up and decisions.stable is not None and decisions.position >= decisions.stable:
                has_caught_up = not elector.is_catching_up
                if has_caught_up:
                    self._next_election = 0.0  # all that a backlog left due
                    self.watch.note_caught_up()
                    log.info("caught_up", applied=elector.state.meta.applied)
                else:
                    await run_unless_stopped(self._stop, self._refuse_loss(elector, decisions, topic))
            if time.monotonic() >= self._next_election:
                self._next_election = time.monotonic() + self.settings.elect_seconds
                await self._tell(elector, topic)
            await run_unless_stopped(self._stop, self._erase_if_due(elector, topic))
            await self._flush_if_due(elector.state)
            self._scrubs.refuse_damage()
            self._checkpoints.begin_if_due(elector.state, self._checkpoints.request())

    async def _refuse_loss(self, elector: Elector, decisions: RecordReader, topic: BestTopic) -> None:
        """Raise StateError if the decisions end for SHORT_SECONDS before the last page that the topic knows:
        then nothing would be told until they have come as far again, and then something wrong."""
        bounds = await retry_until_answered(f"topic {decisions.topic}", decisions.bounds)
        if decisions.position < bounds.end:
            self._short_since = None
            return
        now, meta = time.monotonic(), elector.state.meta
        self._short_since = self._short_since or now
        if now - self._short_since >= SHORT_SECONDS:
            journal = elector.genesis.journal
            last, judged = (show(journal, max(0, page)) for page in (meta.told_until, meta.page))
            raise StateError(
                f"topic {topic.name}: knows pages up to {last}, but topic {decisions.topic} ends with"
                f" {judged}: it lost records, or an older copy of it was put back; restore it, or use another"
                " namespace"
            )

    async def _follow(self, elector: Elector, journal: JournalReader, decisions: RecordReader) -> None:
        """Apply new decisions. Waits briefly if there are none."""
        batch, rows, size, applied = list[Decided](), 0, 0, elector.state.meta.applied
        for record in await decisions.poll():
            decided = decode_decisions(record.value, record.offset)
            if decided.start < applied:
                raise StateError(
                    f"state directory {self._directory}: topic {decisions.topic} offset {record.offset}"
                    f" decides the journal from {decided.start} on, which was applied up to {applied}: it was"
                    " built from other decisions"
                )
            applied = decided.end
            if decided.forgotten is not None or decided.turn is not None:
                if batch:
                    await self._apply(elector, batch)
                    batch, rows, size = [], 0, 0
                await self._apply_alone(elector, Decided([], decided, record.offset + 1))
                continue
            entries = []
            if decided.has_rows:
                entries = await journal.read_up_to(decided.end, self.watch.health.turn)
            batch.append(Decided(entries, decided, record.offset + 1))
            rows += len(decided.codes)
            size += sum(entry.rows.nbytes for entry in entries)
            if rows >= BATCH_ROWS or size >= BATCH_BYTES:
                await self._apply(elector, batch)
                batch, rows, size = [], 0, 0
        if batch:
            await self._apply(elector, batch)

    async def _apply(self, elector: Elector, batch: list[Decided]) -> None:
        with self.watch.stage("apply"):
            self.watch.metrics.rows.inc(await in_thread(elector.apply, batch))
        self.watch.health.turn()

    async def _apply_alone(self, elector: Elector, decided: Decided) -> None:
        """Apply a turn, or a decision that forgets pages, which reads all that was told of clusters."""
        apply = elector.forget if decided.decisions.forgotten is not None else elector.turn
        with self.watch.health.excuse("applying a turn, or what is forgotten"):
            await in_thread(apply, decided)

    async def _tell(
        self, elector: Elector, topic: BestTopic, also_in: Mapping[int, Set[int]] = NOWHERE
    ) -> None:
        """Tell all that is due, unless it is to stop: the next process tells the rest. `also_in` as in
        `BestTopic.write`."""
        with self.watch.stage("elect"):
            last = NO_PAGE
            while not self._stop.is_set() and (due := await in_thread(elector.due, TOLD_AT_ONCE, last)):
                last = due[-1].cluster
                positions = await topic.write(due, elector.state.meta.positions, also_in)
                reach("elector.sent")
                await in_thread(elector.tell, due, positions)
                reach("elector.written")
                self.watch.note_told(due)
                self.watch.health.turn()

    async def _erase_if_due(self, elector: Elector, topic: BestTopic) -> None:
        """Erase what was forgotten: replace the records of the topic that name it, and rewrite the files of
        the state. Interrupted, it begins anew."""
        state = elector.state
        if state.meta.erased == state.meta.forgotten or elector.is_catching_up:
            return
        forgotten, named = await in_thread(elector.to_erase), dict[int, set[int]]()
        with self.watch.stage("erase"), self.watch.health.excuse("erasing what was forgotten"):
            async for records, positions in topic.records_from({}):
                (partition,) = positions
                for cluster, names in (await in_thread(elector.naming, records, forgotten)).items():
                    last = named.get(cluster, set()) - {partition}
                    named[cluster] = last | {partition} if names else last
                if self._stop.is_set():
                    return
            await in_thread(elector.tell_again, [cluster for cluster, where in named.items() if where])
            await self._tell(elector, topic, named)
            if self._stop.is_set():
                return
            reach("forget.erased")
            await in_thread(state.compact)
            reach("forget.compacted")
            await in_thread(state.note_erased)
            await in_thread(state.store.flush)
        log.info("erased", decided=state.meta.erased, urls=len(forgotten.urls))

    async def _flush_if_due(self, state: State) -> None:
        if time.monotonic() < self._next_flush or state.writes == self._flushed:
            return
        self._flushed = state.writes
        with self.watch.stage("flush"):
            await in_thread(state.store.flush)
        reach("elector.flushed")
        self._next_flush = time.monotonic() + self.settings.flush_seconds
        await in_thread(self.watch.note_flush, state)

    # From the start of the process to the loop.

    async def _run(self) -> None:
        settings, watch = self.settings, self.watch
        with watch.health.excuse("waiting for the genesis"):
            genesis = await run_unless_stopped(self._stop, self._checked_genesis())
        if genesis is None:
            return
        async with enter_unless_stopped(self._stop, self._opened(genesis)) as opened:
            if opened is None:
                return
            state, journal, decisions = opened
            elector, fencing = Elector(state, genesis), BestTopic(settings)
            instance = member_id(self._directory.with_suffix(".instance"))
            await run_unless_stopped(self._stop, fencing.refuse_other_policy())
            async with (
                self._scrubs.beside(),
                self._checkpoints.beside(instance),
                enter_unless_stopped(self._stop, fencing) as topic,
            ):
                if topic is None:
                    return
                with watch.following(elector.state, journal, decisions):
                    await run_unless_stopped(self._stop, self._take_over(elector, topic))
                    await self._elect_on(elector, journal, decisions, topic)
            log.info("stopped", applied=elector.state.meta.applied, due=elector.state.meta.due)

    async def _checked_genesis(self) -> Genesis:
        """Wait for the genesis, and refuse missing grants, and topics that break what is told."""
        settings = self.settings
        await retry_until_answered("a broker", lambda: acl_check.check(settings, "elector"))
        genesis = await topics.wait_for_genesis(settings)
        await retry_until_answered("a broker", lambda: topics.check(settings, "elector"))
        return genesis

    @asynccontextmanager
    async def _opened(self, genesis: Genesis) -> AsyncIterator[OpenedState[State]]:
        """Open the state as `open_at_position` does."""
        settings, path = self.settings, self._directory

        def open_state(cluster_id: str) -> State:
            return State.open(path, genesis, cluster_id, settings.elect, cache=settings.tables_cache)

        directory = StateDirectory(path, self._kind, open_state)
        async with AsyncExitStack() as stack:
            with self.watch.health.excuse("opening the state"):
                opened = await stack.enter_async_context(open_at_position(settings, genesis, directory))
            yield opened

    async def _take_over(self, elector: Elector, topic: BestTopic) -> None:
        """Read what the topic says beyond what the state knows."""
        count = 0
        with self.watch.health.excuse("reading what was told"):
            async for records, positions in topic.records_from(elector.state.meta.positions):
                await in_thread(elector.take_over, records, positions)
                count += len(records)
        if count:
            log.info("taken_over", records=count, until=elector.state.meta.told_until)

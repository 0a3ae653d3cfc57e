"""The elector role: follows journal and decisions, and tells which page of each cluster is kept.

Records are committed before the state notes them. A process that was killed between leaves a topic that knows
more than the state; the next one reads it, and tells nothing that the topic has.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Set
from contextlib import nullcontext
from functools import partial
from typing import Final

import structlog

from stream.elector.elector import Elector
from stream.elector.state import State, kind_of_elector
from stream.errors import SettingsError, StateError
from stream.failpoints import reach
from stream.judge.batch import Decided
from stream.judge.ids import NO_PAGE, show
from stream.kafka.in_flight import in_thread
from stream.kafka.outage import retry_until_answered
from stream.kafka.reader import SHORT_SECONDS, TopicReader
from stream.messages.journal import Genesis
from stream.roles.elector.best_topic import NOWHERE, BestTopic
from stream.roles.elector.watch import ElectorWatch
from stream.roles.role import Role
from stream.settings import Settings
from stream.states.directory import FollowingDirectory
from stream.states.erasing import Erasing
from stream.states.follower import Follower
from stream.states.upkeep import Upkeep

log = structlog.get_logger(__name__)

TOLD_AT_ONCE: Final = 4096
"""Records in one transaction."""


class ElectorRole(Role[ElectorWatch]):
    """One elector process."""

    topics, grants, handles_batches = "elector", "elector", True
    when_fenced = (
        "this one ends, and would end the other when restarted: run one elector of a name, or give each an"
        " elector_name"
    )

    def __init__(self, settings: Settings) -> None:
        """Raises SettingsError without a policy."""
        if not settings.elect:
            raise SettingsError(
                "elect: name a policy, by which the page of each cluster that is kept is chosen"
            )
        super().__init__(settings, ElectorWatch())
        self._kind = kind_of_elector(settings.elector_name)
        self._directory = settings.state_dir / settings.namespace / self._kind
        self._upkeep = Upkeep(settings, self._kind, self._directory, self.watch.metrics)
        self._next_election = 0.0
        self._short_since: float | None = None
        """Since when the decisions end before what was told; None if they do not."""

    # The loop: poll, apply, elect.

    async def _elect_on(
        self, elector: Elector, follower: Follower, topic: BestTopic, erasing: Erasing
    ) -> None:
        """Apply decisions as they arrive, and tell at times what is due."""
        has_caught_up, decisions = False, follower.decisions
        self._next_election = time.monotonic() + self.settings.elect_seconds
        while not self._stop.is_set():
            self.watch.health.turn()
            await self._unless_stopped(follower.follow())
            if not has_caught_up and decisions.stable is not None and decisions.position >= decisions.stable:
                has_caught_up = not elector.is_catching_up
                if has_caught_up:
                    self._next_election = 0.0  # all that a backlog left due
                    self.watch.note_caught_up()
                    log.info("caught_up", applied=elector.state.meta.applied)
                else:
                    await self._unless_stopped(self._refuse_loss(elector, decisions, topic))
            if time.monotonic() >= self._next_election:
                self._next_election = time.monotonic() + self.settings.elect_seconds
                await self._tell(elector, topic)
            if erasing.is_due and not elector.is_catching_up:
                await self._unless_stopped(erasing.attend())
            self._upkeep.attend(self._upkeep.request())

    async def _refuse_loss(self, elector: Elector, decisions: TopicReader, topic: BestTopic) -> None:
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

    def _apply(self, elector: Elector, decided: Sequence[Decided]) -> None:
        """Apply recorded decisions, in a thread. One without rows may take long: a turn, or one that forgets
        pages, may read all that was told of clusters."""
        is_long = not all(each.decisions.has_rows for each in decided)
        excuse = self.watch.health.excuse("applying a turn, or what is to be erased")
        with self.watch.stage("apply"), excuse if is_long else nullcontext():
            self.watch.metrics.rows.inc(elector.follow(decided))

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

    async def _replace_named(self, elector: Elector, topic: BestTopic) -> bool:
        """Replace the records of the topic that name what is to be erased. Returns whether it was
        interrupted: then it begins anew."""
        erasing, named = await in_thread(elector.to_erase), dict[int, set[int]]()
        with self.watch.stage("erase"), self.watch.health.excuse("erasing pages"):
            async for records, positions in topic.records_from({}):
                (partition,) = positions
                for cluster, names in (await in_thread(elector.naming, records, erasing)).items():
                    last = named.get(cluster, set()) - {partition}
                    named[cluster] = last | {partition} if names else last
                if self._stop.is_set():
                    return True
            await in_thread(elector.tell_again, [cluster for cluster, where in named.items() if where])
            await self._tell(elector, topic, named)
        return self._stop.is_set()

    # From the start of the process to the loop.

    async def _work(self, genesis: Genesis) -> None:
        """Elect until the role is to end."""
        settings, watch, path = self.settings, self.watch, self._directory

        def open_state(cluster_id: str) -> State:
            return State.open(path, genesis, cluster_id, settings.elect, cache=settings.tables_cache)

        directory = FollowingDirectory(settings, genesis, path, self._kind, open_state)
        async with self._entered(watch.excused("opening the state", directory.opened())) as state:
            if state is None:
                return
            elector, fencing = Elector(state, genesis), BestTopic(settings)
            apply = partial(self._apply, elector)
            follower = Follower(state, apply, directory.journal, directory.decisions)
            await self._unless_stopped(fencing.refuse_other_policy())
            async with self._upkeep.beside(state), self._entered(fencing) as topic:
                if topic is None:
                    return
                with watch.following(state, follower):
                    await self._unless_stopped(self._take_over(elector, topic))
                    erasing = Erasing(state, partial(self._replace_named, elector, topic))
                    try:
                        await self._elect_on(elector, follower, topic, erasing)
                    finally:
                        await erasing.close()
            log.info("stopped", applied=state.meta.applied, due=state.meta.due)

    async def _take_over(self, elector: Elector, topic: BestTopic) -> None:
        """Read what the topic says beyond what the state knows."""
        count = 0
        with self.watch.health.excuse("reading what was told"):
            async for records, positions in topic.records_from(elector.state.meta.positions):
                await in_thread(elector.take_over, records, positions)
                count += len(records)
        if count:
            log.info("taken_over", records=count, until=elector.state.meta.told_until)

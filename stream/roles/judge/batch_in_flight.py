"""The batch in flight of a judge: from journal records to published verdicts and an updated state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from stream.futures import retrieved
from stream.judge.batch import BATCH_BYTES, Entry
from stream.judge.decision.decide import MOST, Effort
from stream.judge.judge import Judge
from stream.judge.judged_batch import JudgedBatch
from stream.judge.state.state import Prepared
from stream.kafka.in_flight import TransactionInFlight, in_thread
from stream.messages.decision import Decisions
from stream.roles.judge.transaction import VerdictPublisher
from stream.roles.judge.verdict_batches import PartitionBatch
from stream.roles.judge.watch import JudgeWatch


class BatchInFlight:
    """A batch on its way: call `decide`, `prepare` and `publish` once each, in this order.

    The transaction of the previous batch must end before `publish`. Nothing is undone: any error ends the
    judge. Leaving the context by an error stops the encoding.
    """

    decided: JudgedBatch
    """Set by `decide`."""
    _decisions: Decisions
    _prepared: Prepared
    _encoding: asyncio.Task[list[PartitionBatch]] | None = None
    """Set by `prepare`."""
    _advancing: asyncio.Task[None]
    """Set by `publish`."""

    def __init__(
        self, entries: list[Entry], judge: Judge, publisher: VerdictPublisher, watch: JudgeWatch, cap: int
    ) -> None:
        """`cap` is what append times count at most, for a journal with a lifetime (rule 15)."""
        self.entries, self._cap = entries, cap
        self._judge, self._publisher, self._watch = judge, publisher, watch
        self._watched = ExitStack()
        self._watched.enter_context(watch.batch(entries))

    async def decide(self) -> list[Entry]:
        """Decide records within the bounds, and before the next turn. Returns the others, which are removed
        from the batch."""
        effort = Effort(MOST, self._watch.health.turn, BATCH_BYTES)
        # In a thread, because spam may take seconds, during which the event loop must run.
        with self._watch.stage("decide"):
            self.decided = await in_thread(self._judge.decide, self.entries, effort, self._cap)
        count = len(self.decided.entries)
        rest = self.entries[count:]
        del self.entries[count:]
        return rest

    async def prepare(self) -> None:
        """Prepare the state change, while the verdicts are being encoded."""
        # Concurrently: preparing the state change needs the GIL, encoding verdicts mostly does not.
        self._encoding = retrieved(asyncio.create_task(self._encode()))
        with self._watch.stage("prepare"):
            self._decisions, self._prepared = await in_thread(self._prepare)

    async def publish(self, transaction: TransactionInFlight, committed: Callable[[], None]) -> None:
        """Begin the transaction. Returns once the state in RAM includes this batch, so that the next one can
        be decided. `committed` is called when the verdicts are published and the state is written."""
        self._advancing = retrieved(asyncio.create_task(in_thread(self._advance)))
        transaction.begin(self._publish(committed))
        await self._advancing

    async def _encode(self) -> list[PartitionBatch]:
        with self._watch.stage("encode"):
            return await self._publisher.encode(self.decided)

    def _prepare(self) -> tuple[Decisions, Prepared]:
        decisions = self.decided.record()
        return decisions, self._judge.prepare(self.entries, decisions, self.decided.batch)

    def _advance(self) -> None:
        self._judge.state.maintain()
        self._judge.state.advance(self._prepared)

    async def _publish(self, committed: Callable[[], None]) -> None:
        with self._watched:
            with self._watch.stage("publish"):
                assert self._encoding is not None  # noqa: S101 (by `prepare`)
                end = await self._publisher.publish(self.decided, self._decisions, await self._encoding)
            await self._advancing
            with self._watch.stage("apply"):
                await in_thread(self._judge.state.write, self._prepared, end)
        committed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self._encoding is not None:
            self._encoding.cancel()
            await asyncio.gather(self._encoding, return_exceptions=True)

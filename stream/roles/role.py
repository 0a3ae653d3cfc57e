"""How every role runs: it waits for brokers, refuses what would break it, and ends when it is told to."""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Any, ClassVar, Generic, TypeVar

from stream.kafka import acl_check, clients, topics
from stream.kafka.broker_watch import reported_outages
from stream.kafka.names import TopicNames
from stream.kafka.outage import retry_until_answered
from stream.kafka.topic_plan import Role as TopicRole
from stream.messages.journal import Genesis
from stream.ops.runtime_tuning import batch_process_tuning
from stream.ops.server import ops_server
from stream.ops.signals import enter_unless_stopped, run_unless_stopped, stop_event_on_signals
from stream.ops.watch import Watch
from stream.settings import Settings

W = TypeVar("W", bound=Watch[Any])
T = TypeVar("T")


class Role(abc.ABC, Generic[W]):
    """One process of a role."""

    topics: ClassVar[TopicRole]
    """Whose topics must be there, and must be as that role needs them."""
    grants: ClassVar[str]
    """Whose access rights it must have."""
    handles_batches: ClassVar = False
    """Whether several threads of it handle large batches."""
    when_fenced: ClassVar = "this one ends, and stands by when restarted"
    """What an operator is told if another process ends this one."""

    def __init__(self, settings: Settings, watch: W) -> None:
        self.settings, self.names, self.watch = settings, TopicNames(settings.namespace), watch
        self.ops_url: str | None = None
        """Where its metrics and health are served."""
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Ask `run` to finish what is begun and return."""
        self._stop.set()

    async def run(self) -> None:
        """Work until SIGTERM, SIGINT or `stop()`. Any error is raised; the recovery is a restart, nothing is
        lost."""
        translated = clients.translated_errors(when_fenced=self.when_fenced)
        with self._tuning(), stop_event_on_signals(self._stop), translated:
            async with self._serving() as self.ops_url:
                with self.watch.health.excuse("waiting for the genesis"):
                    genesis = await self._unless_stopped(self._checked_genesis())
                if genesis is not None:
                    async with self._entered(reported_outages(self.settings)) as has_client:
                        if has_client:
                            await self._work(genesis)

    @abc.abstractmethod
    async def _work(self, genesis: Genesis) -> None:
        """Work until `_stop` is set or an error."""

    def _tuning(self) -> AbstractContextManager[None]:
        return batch_process_tuning() if self.handles_batches else nullcontext()

    def _serving(self) -> AbstractAsyncContextManager[str | None]:
        return ops_server(self.settings, self.watch.metrics, self.watch.health)

    async def _checked_genesis(self) -> Genesis:
        """Wait for the genesis, and refuse another scheme version (rule 6), topics that lose or repeat
        records (rule 14), and missing grants: a denied read would be retried for ever, or noticed late."""
        settings = self.settings
        genesis = await topics.wait_for_genesis(settings)
        await retry_until_answered("a broker", lambda: topics.check(settings, self.topics))
        await retry_until_answered("a broker", lambda: acl_check.check(settings, self.grants))
        return genesis

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of `work`, or cancel it and return None as soon as the role is to end."""
        return await run_unless_stopped(self._stop, work)

    def _entered(self, context: AbstractAsyncContextManager[T]) -> AbstractAsyncContextManager[T | None]:
        """Enter a context, or cancel the entry and yield None as soon as the role is to end."""
        return enter_unless_stopped(self._stop, context)

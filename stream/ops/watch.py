"""Metrics and health of a role, as it reports them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from typing import Generic, TypeVar

from prometheus_client import Gauge

from stream.ops.health import Health
from stream.ops.metrics import Metrics

M = TypeVar("M", bound=Metrics)
T = TypeVar("T")


class Watch(Generic[M]):
    """What a role reports of itself. Some gauges are computed on demand from what it has open."""

    def __init__(self, metrics: M) -> None:
        self.metrics, self.health = metrics, Health()
        self._shown = set[Gauge]()

    def show(self, gauge: Gauge, value: Callable[[], float]) -> None:
        """Show a value on demand, until `release`."""
        gauge.set_function(value)
        self._shown.add(gauge)

    def release(self) -> None:
        """Drop the references to what is about to be closed."""
        self.health.checks.clear()
        for gauge in self._shown:
            gauge.set_function(lambda: 0)
        self._shown.clear()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time one stage of the work."""
        with self.metrics.stage_seconds.labels(name).time():
            yield

    @asynccontextmanager
    async def excused(self, why: str, entering: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
        """Enter a context that may take long, with the liveness check suspended."""
        async with AsyncExitStack() as stack:
            with self.health.excuse(why):
                entered = await stack.enter_async_context(entering)
            yield entered

"""What a role waits for that another program has to end, as its metrics and readiness show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from stream.ops.health import Health
from stream.ops.metrics import Metrics

Show = Callable[[Mapping[tuple[str, int], str], float], None]


@contextmanager
def shown_by(metrics: Metrics, health: Health) -> Iterator[None]:
    """Show by these what `show` is called with while entered, in this task and those that it starts."""

    def show_transactions(transactions: Mapping[tuple[str, int], str], seconds: float) -> None:
        health.awaited = "; ".join(transactions.values()) or None
        metrics.awaited_transaction.clear()
        for topic, partition in transactions:
            metrics.awaited_transaction.labels(topic, str(partition)).set(seconds)

    token = _SHOW.set(show_transactions)
    try:
        yield
    finally:
        _SHOW.reset(token)


def show(transactions: Mapping[tuple[str, int], str], seconds: float) -> None:
    """Show open transactions that are waited for, by topic and partition, and for how long; none at the
    end."""
    if (by := _SHOW.get()) is not None:
        by(transactions, seconds)


_SHOW: Final = ContextVar[Show | None]("show", default=None)

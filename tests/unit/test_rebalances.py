"""A worker that loses its partitions."""

from __future__ import annotations

import asyncio
from unittest.mock import AsyncMock, Mock

import pytest

from stream.roles.worker.assignment import Assignment
from stream.roles.worker.rebalances import Rebalances
from stream.roles.worker.tasks import Tasks
from stream.roles.worker.watch import WorkerStats


async def append() -> None:
    await asyncio.sleep(0)


async def fail() -> None:
    raise OSError("the journal took nothing")


async def hang() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(("last_append", "in_order"), [(append, True), (fail, False), (hang, False)])
async def test_rule_5_attempts_are_cancelled_only_after_the_last_append(last_append, in_order) -> None:
    assignment, tasks, stats = Assignment("pages", frozenset({0})), Tasks(), WorkerStats(partitions=1)
    assignment.open(Mock(), Mock(), commits := Mock(hand_over=AsyncMock()))
    rebalances = Rebalances(Mock(return_value=assignment), asyncio.Event(), tasks, stats, Mock(), 0.1)
    await rebalances.on_partitions_assigned([])
    assignment.writing = tasks.spawn(last_append())
    await rebalances.on_partitions_revoked([])
    assert assignment.writing.done()
    assert commits.hand_over.await_count == in_order
    assert (rebalances.current, stats.partitions) == (None, 0)
    await tasks.end()

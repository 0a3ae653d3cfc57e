"""Tries pages that may have killed workers one by one, after committing the attempt (rule 5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final

import structlog

from stream.children.pool import ChildPool
from stream.fingerprint.row import Row, Status
from stream.roles.worker.assignment import Assignment
from stream.roles.worker.attempts import MOST
from stream.roles.worker.dispatch import ChunkQueue, Dispatch

GIVEN_UP: Final = "ended the whole worker in three attempts, in the last two of which it was processed alone"

log = structlog.get_logger(__name__, role="worker")


async def feed_carefully(
    assignment: Assignment,
    careful: ChunkQueue,
    waiting: ChunkQueue,
    pool: ChildPool,
    stage: Callable[[str], AbstractContextManager[None]],
    answered: Callable[[Assignment, Dispatch, Sequence[Row]], None],
) -> None:
    """Fingerprint and append the pages of `careful` one at a time. Partitions that no longer need this care
    are moved to `waiting`."""
    positions = assignment.positions
    while True:
        dispatch = await careful.take_one()
        partition, page = dispatch.current_page
        with stage("fingerprint"):
            row = await _try_alone(assignment, pool, partition, page, dispatch.values[0])
        if row is None:  # the partitions were reassigned
            return
        assignment.alone = True
        answered(assignment, dispatch, [row])
        while positions.offset(partition) <= page:
            assignment.appended.clear()
            await assignment.appended.wait()
        assignment.alone = False
        if not positions.careful(partition):
            waiting.put_back(careful.remove(partition))


async def _try_alone(
    assignment: Assignment, pool: ChildPool, partition: int, page: int, value: bytes | None
) -> Row | None:
    """Return the row of a page, rejected if it used up its attempts; None if an attempt cannot be
    committed."""
    positions, commits, source = assignment.positions, assignment.commits, assignment.backlog.source
    if positions.exhausted(partition, page):
        log.error("page_given_up", topic=source.topic, partition=partition, offset=page, attempts=MOST)
        return Row(Status.REJECTED, None, None, reason="crash", detail=GIVEN_UP)

    async def before() -> bool:
        positions.try_alone(partition, page)
        return await commits.save({partition})

    async def after() -> None:
        positions.passed(partition)
        await commits.save({partition})

    return await pool.fingerprint_alone(value, before, after)

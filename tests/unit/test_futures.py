"""Errors that nobody waits for any more: no second traceback follows the error that ended a process."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import KafkaConnectionError

from stream.errors import DiskError
from stream.futures import retrieved
from stream.kafka.aiokafka_internals import end_commits, keep_commits
from stream.kafka.election import Election
from stream.kafka.in_flight import in_thread
from stream.ops.metrics import JudgeMetrics
from stream.settings import Settings, load
from stream.states.upkeep import Upkeep


@contextmanager
def nothing_logged() -> Iterator[None]:
    """asyncio reports an exception that was not retrieved when its future is collected."""
    loop, reports = asyncio.get_running_loop(), list[str]()
    loop.set_exception_handler(lambda _, context: reports.append(str(context)))
    yield
    gc.collect()
    assert reports == []


async def fails() -> None:
    raise DiskError("full")


async def test_an_error_that_nobody_waits_for_is_not_logged() -> None:
    with nothing_logged():
        task = retrieved(asyncio.ensure_future(fails()))
        await asyncio.wait([task])
        del task


async def test_a_flush_that_fails_beside_another_error_is_not_logged(tmp_path: Path) -> None:
    """As on a full disk, which the loop meets first."""
    begun, ended = threading.Event(), threading.Event()

    def flush() -> None:
        begun.set()
        ended.wait()
        raise DiskError("full")

    store = SimpleNamespace(flush=flush, disk_bytes=lambda: 0, path=tmp_path)
    settings = Settings(flush_seconds=1e-9, scrub_hours=0)

    async def judge(state: Any) -> None:
        upkeep = Upkeep(settings, "judge", tmp_path, JudgeMetrics())
        async with upkeep.beside(state):
            state.meta = "written"
            upkeep.attend()
            await asyncio.to_thread(begun.wait)
            asyncio.get_running_loop().call_later(0.01, ended.set)
            raise DiskError("met first")

    with nothing_logged():
        with pytest.raises(DiskError, match="met first"):
            await judge(SimpleNamespace(meta="before", store=store))
        await asyncio.sleep(0)


async def test_a_thread_that_fails_after_its_caller_was_cancelled_is_not_logged() -> None:
    begun, ended = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        ended.wait()
        raise DiskError("full")

    with nothing_logged():
        calling = asyncio.create_task(in_thread(work))
        await asyncio.to_thread(begun.wait)
        calling.cancel()
        asyncio.get_running_loop().call_later(0.01, ended.set)
        await asyncio.wait([calling])
        assert calling.cancelled()
        del calling


class _Consumer:
    """A consumer with a group coordinator of aiokafka, whose requests the broker does not answer."""

    def __init__(self) -> None:
        self.asked, self.answers = asyncio.Event(), asyncio.get_running_loop().create_future()
        self._coordinator = SimpleNamespace(
            ensure_coordinator_known=self._nothing,
            _commit_lock=asyncio.Lock(),
            _do_commit_offsets=self._request,
        )

    async def commit(self, offsets: dict[Any, int]) -> None:
        await cast(Callable[..., Any], GroupCoordinator.commit_offsets)(self._coordinator, None, offsets)

    async def _nothing(self) -> None: ...

    async def _request(self, *_: object) -> None:
        self.asked.set()
        await self.answers


@pytest.mark.parametrize("fails", [False, True])
async def test_the_request_of_a_cancelled_commit_does_not_outlive_its_client(fails: bool) -> None:
    """It would connect again to a broker, and its error would be nobody's."""
    consumer = _Consumer()
    kept = cast(AIOKafkaConsumer, consumer)
    keep_commits(kept)
    before = asyncio.all_tasks()
    with nothing_logged():
        committing = asyncio.create_task(consumer.commit({}))
        await consumer.asked.wait()
        committing.cancel()
        await asyncio.wait([committing])
        assert asyncio.all_tasks() != before, "aiokafka shields it"
        if fails:
            consumer.answers.set_exception(KafkaConnectionError())
            await asyncio.wait(asyncio.all_tasks() - before)
        await end_commits(kept)
        assert asyncio.all_tasks() == before


async def test_a_commit_of_the_leader_that_ends_in_another_way_than_by_kafka_is_raised() -> None:
    election = Election(load(dev=True), "judges", "journal", None)

    async def getmany(**_: object) -> None: ...

    async def commit(_: object) -> None:
        raise ValueError("of no use")

    election._consumer = cast(AIOKafkaConsumer, SimpleNamespace(getmany=getmany, commit=commit))
    election.note_judged(1)
    await election.attend()
    with nothing_logged():
        with suppress(ValueError):
            await asyncio.wait([cast(asyncio.Task[None], election._committing)])
        with pytest.raises(ValueError, match="of no use"):
            await election.attend()

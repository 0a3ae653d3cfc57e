"""Where the dashboard goes on reading, and what it refuses to count."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import msgspec
import pytest
from aiokafka.errors import NoOffsetForPartitionError, OffsetOutOfRangeError
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer
from faust.types import TP

from stream.dashboard.counting.app import Statistics
from stream.dashboard.counting.committed import BatchRecords, CommittedTransport, _Consumer, _Thread
from stream.dashboard.counting.forgotten import ForgottenPages
from stream.dashboard.counting.state import State
from stream.dashboard.counting.verdict_columns import VerdictColumns
from stream.errors import StaleError, StateError
from stream.figures import Meta
from stream.kafka.broker_metadata import LogBounds
from stream.settings import load
from tests.genesis import JOURNAL, genesis_of
from tests.kafka.dashboard_helpers import VerdictMaker

COUNTED = {0: 40, 1: 7}


def records(begin: int, *offsets: int) -> BatchRecords:
    values = [msgspec.json.encode(each) for each in VerdictMaker().some(len(offsets))]
    return BatchRecords(list(offsets), values, begin)


class Reading:
    """A dashboard of two partitions that has counted some of them, without a broker."""

    def __init__(
        self, path: Path, starts: tuple[int, int] = (0, 0), ends: tuple[int, int] = (99, 99)
    ) -> None:
        meta = Meta(cluster="here", journal=JOURNAL, topic="topic", positions=COUNTED)
        self.state, self.told = State.open(path / "figures", meta), list[tuple[int, int]]()
        bounds = {p: LogBounds(starts[p], ends[p], ends[p]) for p in range(2)}
        settings, forgotten = (
            load(state_dir=path, namespace="n"),
            ForgottenPages(genesis_of(), self.state),
        )
        (path / "n" / "dashboard").mkdir(parents=True, exist_ok=True)
        try:
            self.statistics = Statistics(settings, self.state, bounds, self._tell, forgotten)
        except BaseException:
            self.state.close()
            raise

    def _tell(self, batch: VerdictColumns) -> None:
        self.told += [(batch.partition, offset) for offset in batch.offsets.tolist()]

    async def take(self, partition: int, begin: int, *offsets: int) -> None:
        await self.statistics._take(partition, records(begin, *offsets))

    def fold(self) -> None:
        self.state.fold(self.statistics._pending, self.statistics.view, 0.0)


@pytest.fixture
async def reading(tmp_path: Path) -> AsyncIterator[Reading]:
    made = Reading(tmp_path)
    with closing(made.state):
        yield made


async def test_what_comes_again_is_left_out_and_what_goes_on_is_taken(reading: Reading) -> None:
    """After a rebalance, Faust may deliver what is still in its queues, and read it again."""
    await reading.take(0, 40, 41, 45)
    await reading.take(0, 40, 41, 45)
    await reading.take(0, 40, 41, 45, 46)
    await reading.take(0, 30, 30, 38)
    await reading.take(1, 7, 9)
    await reading.take(0, 47, 60)
    assert reading.told == [(0, 41), (0, 45), (0, 46), (1, 9), (0, 60)]
    reading.fold()
    assert reading.statistics.counted == {0: 61, 1: 10}
    assert reading.state.meta.since == 0


SKIPPED = r"n.verdicts\[0\]: Faust skipped verdicts from offset 40 on"


@pytest.mark.parametrize(
    ("partition", "begin", "error", "said"),
    [
        (0, 41, RuntimeError, SKIPPED),
        (0, 47, RuntimeError, SKIPPED),
        (2, 0, StaleError, "partitions were added"),
    ],
)
async def test_a_batch_that_does_not_go_on_where_the_state_ends_is_refused(
    reading: Reading, partition: int, begin: int, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        await reading.take(partition, begin, 50)
    assert reading.told == []


@pytest.mark.parametrize(("start", "gone"), [(41, False), (42, True)])
async def test_verdicts_that_are_gone_are_named_in_what_is_counted(
    start: int, gone: bool, tmp_path: Path
) -> None:
    """The marker of the last transaction is no verdict."""
    made = Reading(tmp_path, starts=(start, 5))
    with closing(made.state):
        assert [made.statistics._next_offset(p) for p in range(2)] == [start, 7]
        await made.take(1, 7, 8)
        made.fold()
        assert made.state.meta.since == 0
        await made.take(0, start, 50)
        made.fold()
        assert bool(made.state.meta.since) == gone


async def test_a_topic_that_ends_before_what_is_counted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"partition 0 up to 40, but it ends at 39"):
        Reading(tmp_path, ends=(39, 99))


@pytest.mark.parametrize(
    ("assigned", "ready", "failed"),
    [
        ([{0, 1}], True, False),
        ([{0}], False, True),
        ([set(), {0, 1}], True, False),
        ([{0, 1}, {0}, {0}], False, False),
        ([{0, 1}, set()], False, False),
        ([{0, 1}, {0}, {0, 1}], True, False),
    ],
)
async def test_a_second_dashboard_of_a_name_ends(
    reading: Reading, assigned: list[set[int]], ready: bool, failed: bool
) -> None:
    """The first one gets all partitions again."""
    for each in assigned:
        await reading.statistics._note_assignment(None, each)
    assert (reading.statistics.ready.is_set(), reading.statistics.failed.done()) == (ready, failed)
    if failed:
        with pytest.raises(StaleError, match="dashboard_name"):
            await reading.statistics.failed


async def test_a_clock_that_is_ahead_expires_nothing(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    await reading.take(0, 40, 41)
    reading.fold()
    newest = reading.statistics._newest
    assert newest > 0
    found = []
    for ahead in (60.0, 1e9):
        monkeypatch.setattr(time, "time", lambda ahead=ahead: newest + ahead)
        found.append(reading.statistics._now() - newest)
    assert found == [60.0, 86400.0]


VERDICTS = [TP("n.verdicts", 0), TP("n.verdicts", 1)]


@pytest.fixture
def consumer(tmp_path: Path, reading: Reading, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A consumer with Faust's state, and no connection."""
    ours = _Consumer.__new__(_Consumer)
    ours.app = faust.App("dashboard", store="memory://", datadir=str(tmp_path))
    ours.transport, ours._next = reading.statistics.app.transport, {}
    ours.can_resume_flow, ours.suspend_flow = (SimpleNamespace(clear=int, set=int) for _ in range(2))
    monkeypatch.setattr(_Consumer, "assignment", lambda _: set(VERDICTS))
    return ours


async def test_reading_goes_on_where_the_state_ends_and_each_batch_says_where_it_began(
    consumer: Any, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the group has committed."""
    assert CommittedTransport.Consumer is _Consumer
    sought = dict[TP, int]()

    async def seek(_: Any, offsets: dict[TP, int]) -> None:
        assert not consumer.flow_active
        sought.update(offsets)

    monkeypatch.setattr(_Consumer, "seek_wait", seek)
    monkeypatch.setattr(Consumer, "_to_message", lambda *_: None)
    await reading.take(1, 7, 8)
    await consumer.perform_seek()
    assert sought == {VERDICTS[0]: 40, VERDICTS[1]: 9}
    begins = []
    for last in (45, 99):
        value = BatchRecords()
        consumer._to_message(VERDICTS[0], SimpleNamespace(offset=last, value=value))
        begins.append(value.begin)
    assert begins == [40, 46]


@pytest.mark.parametrize(
    ("error", "ends"),
    [(NoOffsetForPartitionError(VERDICTS[0]), False), (OffsetOutOfRangeError({VERDICTS[0]: 5}), True)],
)
async def test_verdicts_that_are_deleted_while_they_are_read_end_the_dashboard(
    error: Exception, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition that was assigned just now, and that nothing is committed of, does not."""

    async def fetch(*_: Any) -> None:
        raise error

    monkeypatch.setattr(AIOKafkaConsumerThread, "_fetch_records", fetch)
    thread, consumer = _Thread.__new__(_Thread), SimpleNamespace(_fetcher=SimpleNamespace(_records={}))
    if ends:
        with pytest.raises(StaleError, match="deleted before they were read"):
            await thread._fetch_records(consumer, VERDICTS)
    else:
        assert await thread._fetch_records(consumer, VERDICTS) == {}


async def test_what_is_counted_is_committed_and_nothing_else(consumer: Any, reading: Reading) -> None:
    assert set(consumer._filter_tps_with_pending_acks()) == set(VERDICTS)
    await reading.take(0, 40, 41, 45)
    assert [consumer._new_offset(each) for each in VERDICTS] == [40, 7]
    reading.fold()
    assert [consumer._new_offset(each) for each in VERDICTS] == [46, 7]
    assert consumer._new_offset(TP("n.verdicts", 2)) is None

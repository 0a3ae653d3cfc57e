"""The private parts of aiokafka that we use are there: a version without one fails here, and nowhere else."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.consumer.fetcher import Fetcher, FetchResult, PartitionRecords
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import NotCoordinatorForGroupError, ProducerFenced
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.producer.transaction_manager import TransactionManager
from aiokafka.protocol.commit import OffsetFetchRequest, OffsetFetchResponse_v3
from aiokafka.record.memory_records import MemoryRecords

from stream.kafka import aiokafka_internals

PARTITION = TopicPartition("pages", 3)
NOBODY = "127.0.0.1:1"


def parameters(function: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def answer_of(code: int) -> Any:
    return OffsetFetchResponse_v3(throttle_time_ms=0, topics=[], error_code=code)


@pytest.fixture
async def producer() -> AIOKafkaProducer:
    made = AIOKafkaProducer(bootstrap_servers=NOBODY, transactional_id="judge")
    yield made
    made._closed = True


@pytest.fixture
async def consumer() -> AIOKafkaConsumer:
    made = AIOKafkaConsumer(bootstrap_servers=NOBODY)
    yield made
    made._closed = True


async def test_the_error_of_an_offset_fetch_is_at_its_top(consumer: AIOKafkaConsumer) -> None:
    client = aiokafka_internals.client_of(consumer)
    request = OffsetFetchRequest("workers", [])
    moved = NotCoordinatorForGroupError.errno
    answers = iter([answer_of(moved), answer_of(0)])

    async def send(node_id: int, request: Any, **options: Any) -> Any:
        return next(answers)

    client.send = send
    aiokafka_internals.raise_offset_errors(client)
    with pytest.raises(NotCoordinatorForGroupError):
        await client.send(0, request)
    assert (await client.send(0, request)).topics == []


def test_the_coordinator_tells_of_commits_and_errors() -> None:
    assert inspect.iscoroutinefunction(GroupCoordinator.fetch_committed_offsets)
    assert parameters(GroupCoordinator.fetch_committed_offsets) == ["partitions"]
    assert not inspect.iscoroutinefunction(GroupCoordinator.check_errors)
    assert parameters(GroupCoordinator.check_errors) == []
    assert "self._coordinator = GroupCoordinator(" in inspect.getsource(AIOKafkaConsumer)


async def test_a_consumer_counts_as_polling(consumer: AIOKafkaConsumer) -> None:
    state = consumer._subscription
    with aiokafka_internals.as_if_polling(consumer):
        assert state.fetcher_idle_time == 0
    assert state.fetcher_idle_time > 0
    with pytest.raises(TimeoutError), aiokafka_internals.as_if_polling(consumer):
        raise TimeoutError
    assert state.fetcher_idle_time > 0
    assert "fetcher_idle_time" in inspect.getsource(GroupCoordinator)


async def test_progress_is_told_once_position_and_end_are_known(consumer: AIOKafkaConsumer) -> None:
    assert list(aiokafka_internals.fetch_progress(consumer)) == []
    consumer.assign([PARTITION])
    assert list(aiokafka_internals.fetch_progress(consumer)) == []
    state = consumer._subscription.subscription.assignment.state_value(PARTITION)
    state.seek(7)
    assert list(aiokafka_internals.fetch_progress(consumer)) == []
    state.lso = 9
    assert list(aiokafka_internals.fetch_progress(consumer)) == [(PARTITION, 7, 9)]


async def test_a_transaction_says_how_it_ended(producer: AIOKafkaProducer) -> None:
    manager = producer._txn_manager
    assert isinstance(manager, TransactionManager)
    manager.set_pid_and_epoch(1, 0)
    manager.begin_transaction()
    assert aiokafka_internals.transaction_error(producer) is None
    manager.fatal_error(ProducerFenced())
    assert isinstance(aiokafka_internals.transaction_error(producer), ProducerFenced)


async def test_errors_are_retrieved_from_batches_that_were_not_sent(producer: AIOKafkaProducer) -> None:
    manager = producer._txn_manager
    manager.set_pid_and_epoch(1, 0)
    manager.begin_transaction()
    accumulator = producer._message_accumulator
    batch = BatchBuilder(1 << 10, 0, is_transactional=True)
    batch.append(timestamp=None, key=None, value=b"page")
    batch.close()
    manager._txn_partitions.add(PARTITION)
    manager.maybe_add_partition_to_txn(PARTITION)
    await accumulator.add_batch(batch, PARTITION, timeout=1)
    (waiting,) = accumulator._batches[PARTITION]
    waiting.failure(ProducerFenced())
    waiting.future.exception()
    assert waiting._drain_waiter._log_traceback
    aiokafka_internals.retrieve_errors(producer)
    assert not waiting._drain_waiter._log_traceback
    assert accumulator._pending_batches == set()


async def test_what_is_fetched_may_be_kept_elsewhere_and_read_in_another_way(
    consumer: AIOKafkaConsumer,
) -> None:
    aiokafka_internals.read_committed(consumer)
    fetcher = Fetcher(consumer._client, consumer._subscription, isolation_level=consumer._isolation_level)
    assert fetcher._isolation_level == 1
    consumer._fetcher = fetcher
    assert aiokafka_internals.fetched_records(consumer) == {}
    store: OrderedDict[TopicPartition, Any] = OrderedDict()
    aiokafka_internals.keep_fetched_in(consumer, store)
    assert aiokafka_internals.fetched_records(consumer) is store
    batch = BatchBuilder(1 << 10, 0, is_transactional=False)
    for value in (b"a", b"b"):
        batch.append(timestamp=None, key=None, value=value)
    records = PartitionRecords(
        PARTITION, MemoryRecords(bytes(batch._build())), [], 0, None, None, True, fetcher._isolation_level
    )
    consumer.assign([PARTITION])
    assignment = consumer._subscription.subscription.assignment
    assignment.state_value(PARTITION).seek(0)
    result = FetchResult(PARTITION, assignment=assignment, partition_records=records, backoff=0)
    wrapped: list[object] = []

    class Counted:
        def __init__(self, inner: MemoryRecords) -> None:
            self.has_next, self._inner = inner.has_next, inner

        def next_batch(self) -> Any:
            wrapped.append(self)
            return self._inner.next_batch()

    aiokafka_internals.wrap_batches(result, Counted)
    assert [record.value for record in result.getall()] == [b"a", b"b"]
    assert len(wrapped) == 1
    await fetcher.close()

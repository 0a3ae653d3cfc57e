"""Every private part of aiokafka that this program uses, each behind a function that says why.

Checked against aiokafka 0.14.0; `pyproject.toml` pins the minor version.
`tests/unit/test_aiokafka_internals.py` tests that each part still exists with the shape expected here, so an
incompatible version fails there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

import aiokafka.client
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.consumer.fetcher import FetchResult
from aiokafka.consumer.group_coordinator import NoGroupCoordinator
from aiokafka.errors import for_code
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.structs import OffsetAndMetadata

from stream.futures import retrieved


def client_of(owner: AIOKafkaConsumer | AIOKafkaProducer | AIOKafkaAdminClient) -> AIOKafkaClient:
    """The client inside: it sends requests for which aiokafka has no method, such as those for topic ids.

    Only producers have a public attribute for it.
    """
    return owner._client if isinstance(owner, AIOKafkaConsumer | AIOKafkaAdminClient) else owner.client


def raise_offset_errors(client: AIOKafkaClient) -> None:
    """Raise the top-level error of an OffsetFetch answer; call this before the client is used.

    A coordinator that has moved, or is still loading its groups, answers with such an error and without
    partitions. aiokafka looks at the errors of partitions only, so it would take that for a group without
    commits. Once raised, the error makes it look for the coordinator and ask again.
    """
    send = client.send

    async def send_and_check(node_id: int, request: Any, **options: Any) -> Any:
        answer = await send(node_id, request, **options)
        if isinstance(request, OffsetFetchRequest) and (code := getattr(answer, "error_code", 0)):
            raise for_code(code)()
        return answer

    client.send = send_and_check


@contextmanager
def connections_closed_on_error() -> Iterator[None]:
    """Close the connections that clients open while this is entered, if it is left by an error.

    A client that starts asks for metadata over a connection that nothing else knows of. If it is cancelled
    meanwhile, aiokafka leaves that open.
    """
    connections = WeakSet[AIOKafkaConnection]()  # tasks that go on keep the variable
    token = _CONNECTIONS.set(connections)
    try:
        yield
    except BaseException:
        for each in list(connections):
            each.close()
        raise
    finally:
        _CONNECTIONS.reset(token)


_CONNECTIONS: Final = ContextVar[WeakSet[AIOKafkaConnection] | None]("connections", default=None)


async def _create_conn(*where: Any, **options: Any) -> AIOKafkaConnection:
    connection = await create_conn(*where, **options)
    if (connections := _CONNECTIONS.get()) is not None:
        connections.add(connection)
    return connection


aiokafka.client.create_conn = _create_conn


# The group.


async def fetch_committed(
    consumer: AIOKafkaConsumer, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The group's commits with their metadata, which `AIOKafkaConsumer.committed` leaves out."""
    committed: dict[TopicPartition, OffsetAndMetadata] = await consumer._coordinator.fetch_committed_offsets(
        partitions
    )
    return committed


def raise_group_errors(consumer: AIOKafkaConsumer) -> None:
    """Raise an error of the group's coordinator now, which aiokafka would raise at the next poll."""
    consumer._coordinator.check_errors()


def keep_commits(consumer: AIOKafkaConsumer) -> None:
    """Keep the requests of commits for `end_commits`; call this once the consumer is started.

    aiokafka shields the request of a commit. If the commit is cancelled, the request goes on: it connects
    again after the client was closed, and nobody retrieves its error.
    """
    coordinator, requests = consumer._coordinator, set[asyncio.Task[None]]()
    if isinstance(coordinator, NoGroupCoordinator):
        return
    request = coordinator._do_commit_offsets

    def keep_request(*commit: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = retrieved(asyncio.ensure_future(request(*commit)))
        requests.add(task)
        task.add_done_callback(requests.discard)
        return task

    coordinator._do_commit_offsets = keep_request
    _COMMITS[consumer] = requests


async def end_commits(consumer: AIOKafkaConsumer) -> None:
    """Cancel the requests of commits that are under way, and wait for them."""
    requests = list(_COMMITS.get(consumer, ()))
    for request in requests:
        request.cancel()
    await asyncio.gather(*requests, return_exceptions=True)


_COMMITS: Final = WeakKeyDictionary[AIOKafkaConsumer, set[asyncio.Task[None]]]()


@contextmanager
def as_if_polling(consumer: AIOKafkaConsumer) -> Iterator[None]:
    """Let the consumer count as polling while entered, so that it stays in its group without a poll."""
    context = consumer._subscription.fetch_context()
    context.__enter__()
    try:
        yield
    finally:
        context.__exit__(None, None, None)  # after an error it would not decrease its counter


def fetch_progress(consumer: AIOKafkaConsumer) -> Iterator[tuple[TopicPartition, int, int]]:
    """Yield each assigned partition, its next offset to fetch and its last stable offset, if both are known.

    The public `position` is a coroutine that waits for a position.
    """
    subscription = consumer._subscription.subscription
    assignment = subscription.assignment if subscription else None
    if assignment is None:
        return
    for key in assignment.tps:
        state = assignment.state_value(key)
        if state.lso is not None and state.has_valid_position:
            yield key, state.position, state.lso


# Transactions.


def transaction_error(producer: AIOKafkaProducer) -> BaseException | None:
    """The error that ended the transaction. aiokafka itself raises only that there is no transaction."""
    ended: asyncio.Future[Any] = producer._txn_manager.wait_for_transaction_end()
    return ended.exception() if ended.done() and not ended.cancelled() else None


def retrieve_errors(producer: AIOKafkaProducer) -> None:
    """Retrieve the errors of a failed producer, lest asyncio log each of them as never retrieved.

    Callers have no access to some futures of aiokafka: those of the transaction and of unsent batches.
    """
    accumulator = producer._message_accumulator
    batches = [*chain.from_iterable(accumulator._batches.values()), *accumulator._pending_batches]
    futures = [batch._drain_waiter for batch in batches]
    if producer._txn_manager is not None:
        futures.append(producer._txn_manager.wait_for_transaction_end())
    for future in futures:
        if future is not None and future.done() and not future.cancelled():
            future.exception()


# Fetched records; used by the dashboard, whose consumer is created by Faust.


def read_committed(consumer: AIOKafkaConsumer) -> None:
    """Set the isolation level of an existing consumer; call this before it starts."""
    consumer._isolation_level = "read_committed"


def fetched_records(consumer: AIOKafkaConsumer) -> MutableMapping[TopicPartition, Any]:
    """Return the fetched results not consumed yet, in order of arrival: partition -> FetchResult or
    FetchError."""
    results: MutableMapping[TopicPartition, Any] = consumer._fetcher._records
    return results


def keep_fetched_in(consumer: AIOKafkaConsumer, store: MutableMapping[TopicPartition, Any]) -> None:
    """Make the consumer keep fetched results in `store`."""
    consumer._fetcher._records = store


def wrap_batches(result: FetchResult, wrap: Callable[[Any], Any]) -> None:
    """Replace the record batches of a result by `wrap` of them. Call it before any of them is read.

    aiokafka calls `has_next` and `next_batch`, and still decides which batches are committed.
    """
    records = result._partition_records
    records._records = wrap(records._records)

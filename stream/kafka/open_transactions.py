"""Transactions that hide the last records of a log, because they are still open (rule 9).

Whoever leads has no transaction open when it begins, so one that hides something is of another program. What
it hides may be committed, also by a former leader. So whoever leads, deletes, or says that something is
complete waits until it ends. Whoever only reads goes on with what it sees, and says what is hidden.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import structlog
from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from stream.errors import BrokerError, OpenTransactionError, TopicError
from stream.kafka import broker_metadata, clients
from stream.kafka.broker_metadata import LogBounds
from stream.kafka.outage import patience_limit, retry_until_answered
from stream.kafka.own_requests import DescribeProducersRequest, transaction_at
from stream.ops import awaited
from stream.settings import Settings

ASK_SECONDS: Final = 5.0
"""Time-out after which a leader is considered unreachable."""
PAUSE_SECONDS: Final = 0.5
GRACE_SECONDS: Final = 2.0
"""Age from which a transaction is named. Those of our own roles end before, as long as these work."""
LOG_SECONDS: Final = 60.0
"""Interval of log lines about one that lasts."""

log = structlog.get_logger(__name__)


async def bounds_soon(client: AIOKafkaClient, topics: Iterable[str]) -> dict[TopicPartition, LogBounds]:
    """Return the log bounds of topics. Raises BrokerError if a leader does not answer within ASK_SECONDS, and
    TopicError for a missing topic."""
    wanted = list(topics)
    try:
        async with asyncio.timeout(ASK_SECONDS):
            return await broker_metadata.log_bounds(client, wanted)
    except clients.DENIED:
        raise
    except (TimeoutError, KafkaError) as error:
        raise BrokerError(f"topic {', '.join(wanted)}: its leader does not answer ({error!r})") from None


async def settled_bounds(
    client: AIOKafkaClient, topics: Iterable[str], on_iteration: Callable[[], None] = lambda: None
) -> dict[TopicPartition, LogBounds]:
    """Return the log bounds of topics, once no transaction hides any record that they had when this was
    called.

    Waits without limit, and for brokers, calling `on_iteration`. The log names what it waits for, and so do
    the role's metrics and readiness. Raises OpenTransactionError at the end of `patience`, and TopicError if
    a topic loses its end meanwhile.
    """
    wanted = list(topics)
    name = f"topic {', '.join(wanted)}"

    async def ask() -> dict[TopicPartition, LogBounds]:
        return await bounds_soon(client, wanted)

    bounds = await retry_until_answered(name, ask, on_iteration)
    ends = {key: each.end for key, each in bounds.items()}
    began, logged, named = time.monotonic(), -LOG_SECONDS, dict[TopicPartition, str]()
    try:
        while waiting := {key: at.stable for key, at in bounds.items() if at.stable < ends.get(key, 0)}:
            seconds = time.monotonic() - began
            if seconds >= GRACE_SECONDS:
                named = {key: await _reason(client, key, offset) for key, offset in waiting.items()}
                awaited.show(named, seconds)
                if seconds - logged >= LOG_SECONDS:
                    logged = seconds
                    log.warning("waiting", wanted=name, error="; ".join(named.values()))
            if (limit := patience_limit()) is not None and seconds >= limit:
                raise OpenTransactionError(f"waited {limit:g} s: {'; '.join(named.values()) or name}")
            await asyncio.sleep(PAUSE_SECONDS)
            bounds = await retry_until_answered(name, ask, on_iteration)
            for key, at in bounds.items():
                if at.end < ends.get(key, 0):
                    raise TopicError(
                        f"topic {key.topic} partition {key.partition}: ends at {at.end}, but ended at"
                        f" {ends[key]}: it was recreated, or lost records"
                    )
    finally:
        if named:
            awaited.show({}, 0.0)
    if named:
        log.info("open_transactions_ended", wanted=name, waited_seconds=round(time.monotonic() - began))
    return {key: LogBounds(at.start, ends[key], ends[key]) for key, at in bounds.items() if key in ends}


async def _reason(client: AIOKafkaClient, key: TopicPartition, offset: int) -> str:
    """Name a transaction that is open since an offset; its producer if the leader says it."""
    text = f"a transaction is open on {key.topic}-{key.partition} since offset {offset}"
    try:
        async with asyncio.timeout(ASK_SECONDS):
            described = (await broker_metadata.metadata(client, [key.topic])).topics[key.topic]
            leader = described.partitions[key.partition].leader
            producer = transaction_at(await client.send(leader, DescribeProducersRequest(key)), offset)
    except (KafkaError, BrokerError, KeyError, TimeoutError):  # also where it is unknown, or not allowed
        return text
    return text if producer is None else f"{text} (producer id {producer})"


def hidden_since(
    before: Mapping[TopicPartition, LogBounds], now: Mapping[TopicPartition, LogBounds]
) -> list[str]:
    """Say of which partitions a transaction hides records, and did so before."""
    return [
        f"{at.end - at.stable:,} records from offset {at.stable} of {key.topic}-{key.partition} are hidden by"
        " an open transaction"
        for key, at in sorted(now.items())
        if key in before and at.stable == before[key].stable < before[key].end
    ]


@clients.with_translated_errors
async def hidden_records(settings: Settings, *topics: str) -> list[str]:
    """Say what a transaction hides that lasts, of each partition of topics. Raises TopicError and
    BrokerError."""
    async with broker_metadata.connect(settings) as client:
        before = await broker_metadata.log_bounds(client, topics)
        if all(each.stable == each.end for each in before.values()):
            return []
        await asyncio.sleep(GRACE_SECONDS)
        return hidden_since(before, await broker_metadata.log_bounds(client, topics))

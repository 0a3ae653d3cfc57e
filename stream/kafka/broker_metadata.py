"""Requests to the brokers that aiokafka lacks: topic ids, configurations and log bounds.

They work with the client inside any aiokafka object (`consumer._client`), or with one from `connect`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin.config_resource import ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    KafkaError,
    NotLeaderForPartitionError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.protocol.admin import DescribeConfigsRequest
from aiokafka.protocol.offset import OffsetRequest

from stream.errors import BrokerError, TopicError
from stream.kafka import clients
from stream.kafka.aiokafka_internals import client_of
from stream.kafka.own_requests import MetadataRequest, uuid_of
from stream.settings import Settings

ASK_SECONDS: Final = 3.0
"""Time-out of a leader's answer. After it, the leader is looked up again, because it may have moved."""
RETRY_SECONDS: Final = 30.0
"""How long a request is retried while brokers elect leaders, restart or are unreachable."""
PAUSE_SECONDS: Final = 0.2
EARLIEST: Final = -2
LATEST: Final = -1
READ_COMMITTED: Final = 1
UNKNOWN_TOPIC: Final = 3
"""Kafka's error code UNKNOWN_TOPIC_OR_PARTITION."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Partition:
    """Leader and replicas of a partition."""

    leader: int
    """Node id of the leader, or -1 for none."""
    replicas: int
    in_sync: int


@dataclass(frozen=True, slots=True)
class Topic:
    """Metadata of a topic."""

    id: str
    """Topic id, 32 hex digits. A recreated topic has a new id (KIP-516)."""
    partitions: dict[int, Partition]


@dataclass(frozen=True, slots=True)
class Metadata:
    """Metadata of the Kafka cluster, and of those requested topics that exist."""

    cluster_id: str
    topics: dict[str, Topic]


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The range of offsets in a partition's log: [start, end)."""

    start: int
    stable: int
    """The last stable offset, up to which committed records can be read: that of the first record of an open
    transaction, or the end."""
    end: int
    """The high watermark. What a transaction hides may be committed: whoever takes the stable offset for the
    end, and writes what follows, makes a second history (rule 9)."""


@asynccontextmanager
async def connect(settings: Settings) -> AsyncIterator[AIOKafkaClient]:
    """Connect a client for these requests. Raises BrokerError if no broker answers or admits us."""
    async with clients.open_client(settings, clients.client(settings)) as client:
        yield client


async def metadata(client: AIOKafkaClient, topics: Iterable[str], node: int | None = None) -> Metadata:
    """Return the metadata of topics from `node`, or from any broker. Missing topics are omitted, never
    created."""
    answer = await _ask(client, MetadataRequest(list(topics)), node)
    existing = {}
    for code, name, high, low, _, partitions, *_ in answer.topics:
        if code == UNKNOWN_TOPIC:
            continue
        if code == TopicAuthorizationFailedError.errno:
            raise TopicAuthorizationFailedError(name, "(Describe)")
        if code and not partitions:
            raise TopicError(f"topic {name}: {for_code(code).__name__}")
        existing[name] = Topic(
            uuid_of(high, low),
            {
                number: Partition(leader, len(replicas), len(in_sync))
                for _, number, leader, _, replicas, in_sync, *_ in partitions
            },
        )
    return Metadata(answer.cluster_id, existing)


async def allowed_operations(client: AIOKafkaClient, topics: Iterable[str]) -> dict[str, int]:
    """Return topic -> authorized operations, a bit set of Kafka's operation codes (KIP-430), for existing
    topics.

    Raises TopicAuthorizationFailedError for a topic that we are not allowed to see.
    """
    answer = await _ask(client, MetadataRequest(list(topics), operations=True))
    operations_by_topic = {}
    for code, name, _, _, _, _, allowed, _ in answer.topics:
        if code == TopicAuthorizationFailedError.errno:
            raise TopicAuthorizationFailedError(name, "(Describe)")
        if code != UNKNOWN_TOPIC:
            operations_by_topic[name] = allowed
    return operations_by_topic


async def cluster_id(client: AIOKafkaClient) -> str:
    """Return the id of the Kafka cluster, 22 characters."""
    return (await metadata(client, [])).cluster_id


async def topic_id(client: AIOKafkaClient, topic: str, node: int | None = None) -> str:
    """Return the id of a topic, from any broker, or from a node that leads it and serves its records (rule
    4): another broker may not know yet that the topic was recreated. Raises TopicError for a missing
    topic."""
    return (await _present(client, [topic], node)).topics[topic].id


async def topic_id_at_leaders(
    client: AIOKafkaClient,
    reader: AIOKafkaConsumer | AIOKafkaProducer,
    topic: str,
    partitions: Iterable[int],
) -> str:
    """Return the topic id as known by the leaders that serve these partitions to the reader, or to a
    producer. Waits for leaders.

    A broker learns of a new topic before it serves its records. So records that a leader served, or
    acknowledged, *before* this answer belong to the topic with the returned id, or an older one. `client`
    should not be a consumer's own client, where the request would queue behind long-polling fetches. Raises
    TopicError if the topic is missing or being recreated.
    """
    keys = [TopicPartition(topic, partition) for partition in partitions]
    while True:
        leaders = {client_of(reader).cluster.leader_for_partition(key) for key in keys}
        if not leaders & {None, -1}:
            asking = (topic_id(client, topic, leader) for leader in leaders)
            try:
                async with asyncio.timeout(ASK_SECONDS):
                    ids = set(await asyncio.gather(*asking))
            except TimeoutError:
                log.warning("leaders_do_not_answer", topic=topic, leaders=sorted(leaders))
            else:
                if len(ids) == 1:
                    return ids.pop()
                raise TopicError(f"topic {topic} is being recreated: its leaders know it as {sorted(ids)}")
        await client_of(reader).force_metadata_update()
        await asyncio.sleep(PAUSE_SECONDS)


async def partition_counts(client: AIOKafkaClient, topics: Iterable[str]) -> dict[str, int]:
    """Return the numbers of partitions of those topics that exist."""
    answer = await metadata(client, topics)
    return {name: len(topic.partitions) for name, topic in answer.topics.items()}


async def topic_configs(client: AIOKafkaClient, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return all configuration values of topics, including defaults. Raises TopicError for a missing
    topic."""
    resources = [(ConfigResourceType.TOPIC, topic, None) for topic in topics]
    if not resources:
        return {}
    answer = await _ask(client, DescribeConfigsRequest(resources))
    configs = {}
    for code, message, _, topic, entries in answer.resources:
        if code == TopicAuthorizationFailedError.errno:
            raise TopicAuthorizationFailedError(topic, "(DescribeConfigs)")
        if code:
            raise TopicError(f"topic {topic}: {message or for_code(code).__name__}")
        configs[topic] = {name: value for name, value, *_ in entries if value is not None}
    return configs


async def log_bounds(client: AIOKafkaClient, topics: Iterable[str]) -> dict[TopicPartition, LogBounds]:
    """Return the log bounds of all partitions of topics, from their leaders. Nothing else asks where a log
    ends (`tests/unit/test_log_bounds.py`).

    Raises TopicError for a missing topic, and BrokerError if a partition has no leader for RETRY_SECONDS.
    """
    wanted = list(topics)
    deadline = asyncio.get_running_loop().time() + RETRY_SECONDS
    while True:
        topic_metadata = await _present(client, wanted)
        try:
            return await _bounds(client, topic_metadata)
        except TopicAuthorizationFailedError:
            raise
        except (KafkaError, BrokerError) as error:  # the leader changed between the two requests
            if asyncio.get_running_loop().time() > deadline:
                raise BrokerError(f"offsets of {', '.join(wanted)}: {error!r}") from error
        await asyncio.sleep(PAUSE_SECONDS)


async def _bounds(client: AIOKafkaClient, topic_metadata: Metadata) -> dict[TopicPartition, LogBounds]:
    by_leader: defaultdict[int, dict[str, list[int]]] = defaultdict(dict)
    for name, topic in topic_metadata.topics.items():
        for number, partition in topic.partitions.items():
            if partition.leader < 0:
                raise NotLeaderForPartitionError(f"{name} {number}")
            by_leader[partition.leader].setdefault(name, []).append(number)
    bounds: dict[TopicPartition, LogBounds] = {}
    for leader, topics in by_leader.items():
        start = await _offsets(client, leader, topics, EARLIEST)
        # The end first: a transaction that begins between the two is none that hides what was before.
        end = await _offsets(client, leader, topics, LATEST)
        stable = await _offsets(client, leader, topics, LATEST, READ_COMMITTED)
        bounds |= {key: LogBounds(start[key], min(stable[key], end[key]), end[key]) for key in end}
    return bounds


async def _offsets(
    client: AIOKafkaClient, leader: int, topics: Mapping[str, list[int]], which: int, isolation: int = 0
) -> dict[TopicPartition, int]:
    wanted = [(name, [(number, which) for number in numbers]) for name, numbers in topics.items()]
    answer = await _ask(client, OffsetRequest(-1, isolation, wanted), leader)
    offsets = {}
    for name, partitions in answer.topics:
        for number, code, _, offset in partitions:
            if code:
                raise for_code(code)(f"{name} {number}")
            offsets[TopicPartition(name, number)] = offset
    return offsets


async def _present(client: AIOKafkaClient, wanted: list[str], node: int | None = None) -> Metadata:
    """Return the metadata of topics. Raises TopicError if some are missing."""
    present = await metadata(client, wanted, node)
    if missing := [name for name in wanted if name not in present.topics]:
        raise TopicError(f"no such topic: {', '.join(missing)}")
    return present


async def _ask(client: AIOKafkaClient, request: Any, node: int | None = None) -> Any:
    """Send a request to a node, or to any. Raises BrokerError if there is no answer for RETRY_SECONDS."""
    deadline = asyncio.get_running_loop().time() + RETRY_SECONDS
    while True:
        target = client.get_random_node() if node is None else node
        try:
            if target is not None:
                return await client.send(target, request)
            reason: Exception | None = None
        except NotImplementedError as error:
            raise BrokerError(
                "the brokers are older than Kafka 3.1, which is required for topic ids"
            ) from error
        except KafkaError as error:
            reason = error
        if asyncio.get_running_loop().time() > deadline:
            raise BrokerError(f"no answer from node {target} to {type(request).__name__}: {reason!r}")
        await asyncio.sleep(PAUSE_SECONDS)
        await client.force_metadata_update()

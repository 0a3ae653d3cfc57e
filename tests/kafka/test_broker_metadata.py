"""Requests to brokers that aiokafka lacks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from stream.brokers.local_broker import LocalBroker
from stream.brokers.ports import free_port
from stream.errors import BrokerError, TopicError
from stream.kafka import broker_metadata
from stream.kafka.own_requests import uuid_of
from stream.settings import load
from tests.waiting import until_answer

pytestmark = pytest.mark.broker
Known = Callable[[bool], Awaitable[None]]


@pytest.fixture
def known(admin: AIOKafkaAdminClient, namespace: str) -> Known:
    """Waits until the broker knows, or has forgotten, the topic named like the namespace."""

    async def wait(wanted: bool) -> None:
        await until_answer(
            lambda: broker_metadata.metadata(admin._client, [namespace]),
            lambda answer: (namespace in answer.topics) == wanted,
        )

    return wait


async def test_a_recreated_topic_has_another_id(
    admin: AIOKafkaAdminClient, namespace: str, known: Known
) -> None:
    ids = []
    for _ in range(2):
        await admin.create_topics([NewTopic(namespace, 1, 1)])
        await known(True)
        found = await broker_metadata.topic_id(admin._client, namespace)
        assert len(bytes.fromhex(found)) == 16
        assert found == await broker_metadata.topic_id(admin._client, namespace)
        ids.append(found)
        await admin.delete_topics([namespace])
        await known(False)
    assert ids[0] != ids[1]


async def test_a_consumer_s_own_client_can_ask_the_leader(
    broker: LocalBroker, admin: AIOKafkaAdminClient, namespace: str, known: Known
) -> None:
    await admin.create_topics([NewTopic(namespace, 2, 1)])
    await known(True)
    consumer = AIOKafkaConsumer(namespace, bootstrap_servers=broker.bootstrap_servers)
    await consumer.start()
    try:
        leader = consumer._client.cluster.leader_for_partition(TopicPartition(namespace, 0))
        asked = await broker_metadata.topic_id(consumer._client, namespace, leader)
    finally:
        await consumer.stop()
    assert asked == await broker_metadata.topic_id(admin._client, namespace)


async def test_a_missing_topic_is_an_error_and_is_not_created(
    admin: AIOKafkaAdminClient, namespace: str
) -> None:
    client = admin._client
    for question in (
        broker_metadata.topic_id(client, namespace),
        broker_metadata.topic_configs(client, [namespace]),
        broker_metadata.log_bounds(client, [namespace]),
    ):
        with pytest.raises(TopicError, match=namespace):
            await question
    assert await broker_metadata.partition_counts(client, [namespace]) == {}
    assert namespace not in await admin.list_topics()


async def test_partitions_configurations_and_cluster_are_told(
    admin: AIOKafkaAdminClient, namespace: str, known: Known
) -> None:
    await admin.create_topics([NewTopic(namespace, 3, 1, topic_configs={"retention.ms": "-1"})])
    await known(True)
    client = admin._client
    assert await broker_metadata.partition_counts(client, [namespace]) == {namespace: 3}
    configs = (await broker_metadata.topic_configs(client, [namespace]))[namespace]
    assert configs["retention.ms"] == "-1"
    assert configs["cleanup.policy"] == "delete"
    told = await broker_metadata.metadata(client, [namespace])
    assert {p.replicas for p in told.topics[namespace].partitions.values()} == {1}
    assert told.cluster_id == await broker_metadata.cluster_id(client)
    assert len(told.cluster_id) == 22


async def test_log_bounds_tell_an_open_transaction_from_the_end(
    broker: LocalBroker, admin: AIOKafkaAdminClient, namespace: str, known: Known
) -> None:
    await admin.create_topics([NewTopic(namespace, 2, 1)])
    await known(True)
    key = TopicPartition(namespace, 1)
    servers = broker.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id=namespace) as producer:
        async with producer.transaction():
            await producer.send_and_wait(namespace, b"open", partition=1)
            bounds = await broker_metadata.log_bounds(admin._client, [namespace])
        assert bounds[key] == broker_metadata.LogBounds(0, stable=0, end=1)
        assert bounds[TopicPartition(namespace, 0)] == broker_metadata.LogBounds(0, 0, 0)
    await until_answer(
        lambda: broker_metadata.log_bounds(admin._client, [namespace]), lambda bounds: bounds[key].stable == 2
    )


async def test_no_broker_is_an_error_that_names_the_option() -> None:
    servers = f"127.0.0.1:{free_port()}"
    with pytest.raises(BrokerError, match=f"bootstrap_servers: no broker answers at {servers}"):
        async with broker_metadata.connect(load(bootstrap_servers=servers)):
            pass


def test_topic_ids_are_unsigned() -> None:
    assert uuid_of(-1, 1) == "f" * 16 + "0" * 15 + "1"

"""What the brokers allow us, asked before anything is begun: some clients would retry a refusal for ever."""

from __future__ import annotations

import asyncio
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    TopicAuthorizationFailedError,
)
from aiokafka.protocol.group import HeartbeatRequest

from stream.errors import BrokerError
from stream.kafka import broker_metadata, clients
from stream.kafka.acls import Grant, grants
from stream.kafka.aiokafka_internals import client_of
from stream.kafka.names import Names
from stream.settings import Settings

_CODES: Final = {"Read": 3, "Write": 4, "Create": 5, "Describe": 8, "DescribeConfigs": 10}
"""Kafka's numbers of operations, and of bits in the answer to KIP-430's question."""
_COORDINATOR: Final = 0
"""Kafka's type of a group's coordinator."""


@clients.explains_errors
async def demand(settings: Settings, role: str) -> None:
    """Raise AccessError, naming the resource and operation, unless the role has its grants.

    Of a topic that is not there yet, only whether we may see and make it can be asked.
    """
    needed = grants(role, Names(settings.namespace))
    async with clients.started(settings, clients.admin(settings)) as admin:
        await _topics(admin, [each for each in needed if each.kind == "topic"])
        for each in needed:
            if each.kind == "group":
                await _group(client_of(admin), each)


async def _topics(admin: AIOKafkaAdminClient, needed: list[Grant]) -> None:
    allowed = await broker_metadata.allowed_operations(client_of(admin), [each.name for each in needed])
    for each in needed:
        if each.name in allowed:
            for operation in each.operations:
                # Who made the topic need not be allowed to make it for ever.
                if operation != "Create" and not allowed[each.name] >> _CODES[operation] & 1:
                    raise TopicAuthorizationFailedError(each.name, f"({operation})")
        elif "Create" in each.operations:
            answer = await admin.create_topics([NewTopic(each.name, 1, 1)], validate_only=True)
            if answer.topic_errors[0][1] == TopicAuthorizationFailedError.errno:
                raise TopicAuthorizationFailedError(each.name, "(Create)")


async def _group(client: AIOKafkaClient, needed: Grant) -> None:
    node = await _coordinator(client, needed.name)
    if "Read" in needed.operations:
        # A heartbeat of nobody: it changes nothing, and who may not join is told so first.
        answer = await client.send(node, HeartbeatRequest(needed.name, -1, ""))
        if answer.error_code == GroupAuthorizationFailedError.errno:
            raise GroupAuthorizationFailedError(needed.name, "(Read)")


async def _coordinator(client: AIOKafkaClient, group: str) -> int:
    deadline = asyncio.get_running_loop().time() + broker_metadata.RETRY_SECONDS
    while True:
        try:
            return int(await client.coordinator_lookup(_COORDINATOR, group))
        except GroupAuthorizationFailedError:
            raise GroupAuthorizationFailedError(group, "(Describe)") from None
        except GroupCoordinatorNotAvailableError as error:  # a cluster that never had a group
            if asyncio.get_running_loop().time() > deadline:
                raise BrokerError(f"group {group}: no coordinator: {error!r}") from None
        await asyncio.sleep(broker_metadata.PAUSE_SECONDS)

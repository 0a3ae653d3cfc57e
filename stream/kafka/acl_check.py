"""ACL preflight at role start, because some clients retry a denied operation forever."""

from __future__ import annotations

import asyncio
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient
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
from stream.kafka.names import TopicNames
from stream.settings import Settings

_CODES: Final = {"Read": 3, "Write": 4, "Delete": 6, "Describe": 8, "DescribeConfigs": 10}
"""Kafka's operation codes, which are also bit numbers of the authorized operations (KIP-430)."""
_COORDINATOR: Final = 0
"""Kafka's key type for group coordinators."""


@clients.with_translated_errors
async def check(settings: Settings, role: str) -> None:
    """Raise AccessError, which names resource and operation, unless the role has all its grants.

    Of a topic that does not exist, only the grant to see it can be checked.
    """
    electors = [settings.elector_name] if settings.elect else []
    names, dashboard = TopicNames(settings.namespace), settings.dashboard_name
    needed = grants(role, names, electors=electors, dashboard=dashboard)
    async with clients.open_client(settings, clients.admin(settings)) as admin:
        await _topics(admin, [each for each in needed if each.kind == "topic"])
        for each in needed:
            if each.kind == "group":
                await _group(client_of(admin), each)


async def _topics(admin: AIOKafkaAdminClient, needed: list[Grant]) -> None:
    allowed = await broker_metadata.allowed_operations(client_of(admin), [each.name for each in needed])
    for each in needed:
        if each.name in allowed:
            for operation in each.operations:
                if not allowed[each.name] >> _CODES[operation] & 1:
                    raise TopicAuthorizationFailedError(each.name, f"({operation})")


async def _group(client: AIOKafkaClient, needed: Grant) -> None:
    node = await _coordinator(client, needed.name)
    if "Read" in needed.operations:
        # A heartbeat of an unknown member has no effect, but checks the authorization first.
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
        except GroupCoordinatorNotAvailableError as error:  # a Kafka cluster that never had a consumer group
            if asyncio.get_running_loop().time() > deadline:
                raise BrokerError(f"group {group}: no coordinator: {error!r}") from None
        await asyncio.sleep(broker_metadata.PAUSE_SECONDS)

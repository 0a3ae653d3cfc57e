"""Consumer groups as Kafka describes them: their state, their members, and who reads which partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import KafkaError

LONGEST: Final = 200
"""Maximum length of a member's name."""


@dataclass(frozen=True, slots=True)
class Member:
    """A process in a group."""

    id: str
    """The id that Kafka gave it when it joined."""
    address: str
    """The address it connects from."""
    partitions: frozenset[int]
    """Partitions of the watched topic assigned to it."""


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """A consumer group at one time."""

    state: str
    """Stable, Empty, Dead, PreparingRebalance, ..."""
    members: tuple[Member, ...]

    def reader(self, partition: int) -> str | None:
        """Return the address of the member that a partition is assigned to."""
        return next((each.address for each in self.members if partition in each.partitions), None)


async def describe_group(admin: AIOKafkaAdminClient, group: str, topic: str) -> ConsumerGroup:
    """Describe a group, and the assignment of a topic."""
    (answer,) = await admin.describe_consumer_groups([group])
    _, _, state, _, _, members, *_ = answer.groups[0]
    return ConsumerGroup(
        state or "Unknown",
        tuple(
            Member(name[:LONGEST], address.removeprefix("/")[:LONGEST], _partitions(assignment, topic))
            for name, _, address, _, assignment in members
        ),
    )


def _partitions(assignment: bytes, topic: str) -> frozenset[int]:
    if not assignment:  # while the group rebalances
        return frozenset()
    topics = ConsumerProtocolMemberAssignment.decode(assignment).assignment
    return frozenset(number for name, numbers in topics if name == topic for number in numbers)


async def committed_offsets(admin: AIOKafkaAdminClient, group: str) -> dict[TopicPartition, int]:
    """Return the offsets that a group has committed."""
    try:
        offsets = await admin.list_consumer_group_offsets(group)
    except KafkaError:  # a Kafka cluster that never had a consumer group
        return {}
    return {key: value.offset for key, value in offsets.items() if value.offset >= 0}

"""Topics are created once brokers live: where all of them are fenced for a moment, they are asked again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.admin import NewTopic

from stream.errors import TopicError
from stream.kafka.topics import _request_creation

INVALID_REPLICATION_FACTOR = 38


class _Admin:
    """Answers with an error of the replication factor."""

    def __init__(self, message: str) -> None:
        self._message = message

    async def create_topics(self, topics: list[NewTopic]) -> Any:
        errors = [(topic.name, INVALID_REPLICATION_FACTOR, self._message) for topic in topics]
        return SimpleNamespace(topic_errors=errors)


FENCED = "Unable to replicate the partition 1 time(s): All brokers are currently fenced."
FEW = "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached."


async def test_brokers_that_are_fenced_are_asked_again() -> None:
    admin: Any = _Admin(FENCED)
    assert await _request_creation(admin, [NewTopic("a.pages", 1, 1)]) == []


async def test_fewer_brokers_than_replicas_are_refused_with_what_helps() -> None:
    admin: Any = _Admin(FEW)
    with pytest.raises(TopicError, match=r"a\.pages: replication factor 3 was refused: .*--dev"):
        await _request_creation(admin, [NewTopic("a.pages", 1, 3)])

"""Whether a state, open or in a checkpoint, was built from the topics as they are now (rule 9)."""

from __future__ import annotations

from typing import Any, NamedTuple

from aiokafka import TopicPartition

from stream.errors import StateError, TrimmedLogError
from stream.kafka import clients
from stream.kafka.broker_metadata import LogBounds
from stream.kafka.names import TopicNames
from stream.kafka.open_transactions import bounds_soon
from stream.kafka.outage import retry_until_answered
from stream.kafka.reader import journal_reader
from stream.messages.journal import Genesis
from stream.settings import Settings


class Logs(NamedTuple):
    """Bounds of the logs that judges and electors follow."""

    decisions: LogBounds
    journal: LogBounds


async def bounds_of_logs(settings: Settings) -> Logs:
    """Return the bounds of both logs. Waits for brokers."""
    names = TopicNames(settings.namespace)
    topics = (names.decisions, names.journal)
    async with clients.open_client(settings, clients.client(settings), patiently=True) as client:
        bounds = await retry_until_answered(
            f"topics {' and '.join(topics)}", lambda: bounds_soon(client, topics)
        )
    return Logs(*(bounds[TopicPartition(topic, 0)] for topic in topics))


async def misfit(position: Any, logs: Logs, settings: Settings, genesis: Genesis) -> StateError | None:
    """Return why a state cannot go on from its position, or None: a TrimmedLogError if a log starts behind
    the position, or behind the journal record before it. `position` is a manifest, or metadata: it has the
    offsets `applied` and `decided` to go on at, and the digest `last` of the journal record before. Waits for
    brokers."""
    names, at = TopicNames(settings.namespace), logs.decisions
    if position.decided > at.end:
        return StateError(
            f"has applied topic {names.decisions} up to {position.decided}, but it ends at {at.end}"
        )
    if position.decided < at.start:
        return TrimmedLogError(
            f"topic {names.decisions}: needed from {position.decided} on, but it starts at {at.start}"
        )
    at = logs.journal
    needed = max(0, position.applied - 1)
    if needed < at.start:
        return TrimmedLogError(f"topic {names.journal}: needed from {needed} on, but it starts at {at.start}")
    if not position.last:
        return None
    if position.applied > at.end:
        return StateError(
            f"has applied topic {names.journal} up to {position.applied}, but it ends at {at.end}"
        )
    try:
        async with journal_reader(settings, needed, genesis) as reader:
            entries = await reader.read_up_to(position.applied)
    except StateError as error:
        return error
    if entries[-1].digest != position.last:
        return StateError(f"built from another journal, whose record {needed} differs")
    return None

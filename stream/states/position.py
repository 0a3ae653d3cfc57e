"""Whether a state, open or in a checkpoint, was built from the topics as they are now (rule 9)."""

from __future__ import annotations

from typing import NamedTuple, Self

from stream.errors import TrimmedLogError
from stream.kafka.names import TopicNames
from stream.kafka.outage import retry_until_answered
from stream.kafka.reader import JournalReader, RecordReader, journal_reader
from stream.messages.journal import Genesis
from stream.settings import Settings
from stream.states.state import OpenState


class Position(NamedTuple):
    """How far a state has come."""

    applied: int
    """The next journal offset to apply."""
    last: bytes
    """Digest of the journal record at `applied - 1`; empty before the first record."""
    decided: int
    """The next offset of the decisions topic to apply."""

    @classmethod
    def of(cls, state: OpenState) -> Self:
        """The position of a state."""
        meta = state.meta
        return cls(meta.applied, meta.last, meta.decided)


async def misfit(
    position: Position,
    settings: Settings,
    genesis: Genesis,
    journal: JournalReader,
    decisions: RecordReader,
) -> str | None:
    """Return why a state cannot go on from its position, or None. The readers are asked for the bounds of
    their topics only.

    Waits for brokers. Raises TrimmedLogError if a log starts behind the position, or behind the journal
    record before it, and StateError if that record is gone in another way.
    """
    names = TopicNames(settings.namespace)
    at = await retry_until_answered(f"topic {names.decisions}", decisions.bounds)
    if position.decided > at.end:
        return f"has applied topic {names.decisions} up to {position.decided}, but it ends at {at.end}"
    if position.decided < at.start:
        raise TrimmedLogError(
            f"topic {names.decisions}: needed from {position.decided} on, but it starts at {at.start}"
        )
    at = await retry_until_answered(f"topic {names.journal}", journal.bounds)
    needed = max(0, position.applied - 1)
    if needed < at.start:
        raise TrimmedLogError(f"topic {names.journal}: needed from {needed} on, but it starts at {at.start}")
    if not position.last:
        return None
    if position.applied > at.end:
        return f"has applied topic {names.journal} up to {position.applied}, but it ends at {at.end}"
    async with journal_reader(settings, position.applied - 1, genesis) as reader:
        entries = await reader.read_up_to(position.applied)
    if entries[-1].digest != position.last:
        return f"built from another journal, whose record {position.applied - 1} differs"
    return None

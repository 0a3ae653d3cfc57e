"""Recomputes the decisions of the whole journal, and compares them with the recorded ones (rule 8)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from stream.kafka import clients, topics
from stream.kafka.audit import GENESIS_SECONDS
from stream.kafka.follower import opened_follower
from stream.kafka.names import TopicNames
from stream.kafka.reader import TopicReader
from stream.messages.decision import decode_decisions
from stream.settings import Settings


@clients.explains_errors
async def recompute(settings: Settings, progress: Callable[[str, int], None] = lambda *_: None) -> list[str]:
    """Decide the whole journal again in a temporary state. Returns the differences from the recorded
    decisions."""
    names = TopicNames(settings.namespace)
    genesis = await topics.wait_for_genesis(settings, GENESIS_SECONDS)
    differences: list[str] = []
    with tempfile.TemporaryDirectory(prefix="neardup-audit-") as directory:
        async with (
            opened_follower(settings, genesis, Path(directory) / "state") as follower,
            TopicReader(settings, names.decisions, 0) as decisions,
        ):
            _, end = await decisions.bounds()
            while decisions.position < end:
                for record in await decisions.poll():
                    logged = decode_decisions(record.value, record.offset)
                    entries = await follower.journal.up_to(logged.end)
                    again = follower.judge.decide(entries).record()
                    if again != logged:
                        differences.append(
                            f"decisions offset {record.offset}: {', '.join(_unequal(again, logged))}"
                        )
                    follower.judge.apply(entries, logged, record.offset + 1)
                    progress(names.journal, logged.end)
    return differences


def _unequal(a: msgspec.Struct, b: msgspec.Struct) -> list[str]:
    return [f for f in a.__struct_fields__ if getattr(a, f) != getattr(b, f)]

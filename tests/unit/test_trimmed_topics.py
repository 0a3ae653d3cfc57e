"""Logs of which the beginning or the end is gone: states, readers and a trim, without a broker."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from stream.checkpoints.catalogue import Catalogue
from stream.errors import StaleError, StateError, TrimmedLogError
from stream.kafka.broker_metadata import LogBounds
from stream.kafka.decided_sources import DecidedSources
from stream.messages.decision import (
    LedgerPart,
    SourceProgress,
    encode_decisions,
    ledger_record,
)
from stream.roles.trimmer import trim
from stream.settings import Settings
from stream.states.position import Logs, misfit
from tests.genesis import genesis_of
from tests.topic_in_memory import TopicInMemory

GENESIS = genesis_of()
SETTINGS = Settings.model_construct(namespace="crawl", bootstrap_servers="127.0.0.1:1")
LOGS = Logs(decisions=LogBounds(20, 30, 30), journal=LogBounds(30, 40, 40))
NOTHING_APPLIED = b""
DIGEST = b"d" * 16


def progress(partition: int, expected: int) -> SourceProgress:
    return SourceProgress("a-cluster", "pages", "ab" * 16, partition, expected, 0)


def ledger(sources: list[SourceProgress], first: int, total: int) -> bytes:
    return encode_decisions(
        ledger_record(GENESIS.journal, "o", 7, DIGEST, 0, sources, LedgerPart(first, total))
    )


def decision(*sources: SourceProgress) -> bytes:
    record = ledger_record(GENESIS.journal, "o", 7, DIGEST, 0, list(sources), LedgerPart(0, 0))
    return encode_decisions(structs.replace(record, end=8, ledger=None))


@pytest.mark.parametrize(
    ("position", "kind", "expected"),
    [
        (
            (0, NOTHING_APPLIED, 0),
            TrimmedLogError,
            "decisions: needed from 0 on, but it starts at 20",
        ),
        ((40, DIGEST, 19), TrimmedLogError, "decisions: needed from 19 on, but it starts at 20"),
        # The record before the position is needed, too: its digest tells journals apart.
        ((30, DIGEST, 20), TrimmedLogError, "journal: needed from 29 on, but it starts at 30"),
        ((0, NOTHING_APPLIED, 25), TrimmedLogError, "journal: needed from 0 on, but it starts at 30"),
        # Its records are not gone: the log lost others, and no checkpoint helps.
        ((40, DIGEST, 31), StateError, "decisions up to 31, but it ends at 30"),
        ((41, DIGEST, 30), StateError, "journal up to 41, but it ends at 40"),
    ],
)
async def test_a_position_before_or_behind_a_log_is_named_with_the_topic(
    position: tuple[int, bytes, int], kind: type[Exception], expected: str
) -> None:
    applied, last, decided = position
    state = SimpleNamespace(applied=applied, last=last, decided=decided)
    reason = await misfit(state, LOGS, SETTINGS, GENESIS)
    assert type(reason) is kind
    verb = "has applied " if kind is StateError else ""
    assert str(reason) == f"{verb}topic crawl.{expected}"


async def read(sources: DecidedSources) -> list[SourceProgress]:
    topic, found = sources.decisions, list[SourceProgress]()
    while topic.position < (await topic.bounds()).end:
        found += await sources.poll()
    return found


@pytest.mark.parametrize("at_once", [1, 2, 1000])
async def test_who_was_asleep_during_a_trim_goes_on_at_the_ledger(at_once: int) -> None:
    values = [decision(progress(0, n)) for n in range(10)]
    values += [ledger([progress(0, 9)], 0, 2), ledger([progress(1, 5)], 1, 2), decision(progress(0, 20))]
    topic = TopicInMemory("decisions", values, at_once=at_once)
    sources = DecidedSources(topic)
    await sources.begin()
    assert progress(0, 0) in await sources.poll()
    topic.seek(3)
    topic.delete_before(10)
    assert await read(sources) == [progress(0, 9), progress(1, 5), progress(0, 20)]


async def test_a_reader_at_the_end_of_a_trimmed_log_goes_on() -> None:
    """Only who begins at its beginning needs the ledger there."""
    topic = TopicInMemory("decisions", [decision(progress(0, 1)), decision(progress(0, 2))], 10)
    topic.seek(11)
    assert await read(DecidedSources(topic)) == [progress(0, 2)]


@pytest.mark.parametrize("begins", [decision(progress(0, 1)), ledger([progress(1, 5)], 1, 2)])
async def test_a_log_that_starts_with_anything_else_is_refused(begins: bytes) -> None:
    topic = TopicInMemory("decisions", [begins, ledger([progress(0, 9)], 0, 1)], 10)
    sources = DecidedSources(topic)
    await sources.begin()
    with pytest.raises(StateError, match="topic decisions: starts at 10, but not with a ledger record"):
        await sources.poll()
    whole = DecidedSources(TopicInMemory("decisions", [decision(progress(0, 1))]))
    await whole.begin()
    assert await whole.poll() == [progress(0, 1)]


@pytest.mark.parametrize("lost", ["crawl.decisions", "crawl.journal"])
async def test_a_log_that_ends_before_the_offset_holds_the_trim(
    lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def delete(_client: object, topic: str, before: int) -> int:
        if topic == lost:
            raise StaleError(f"topic {topic}: ends before offset {before}")
        return before

    async def nothing(*_: object) -> None:
        pass

    async def survey(_: object) -> trim._Survey:
        return trim._Survey([], [], [], [], set())

    async def bounds() -> dict[str, LogBounds]:
        return {"crawl.decisions": LogBounds(0, 50, 50), "crawl.journal": LogBounds(0, 90, 90)}

    async def point(*_: object, **__: object) -> tuple[Any, trim.Hold]:
        return SimpleNamespace(offset=20, end=31), trim.Hold(trim.CHECKPOINT, "the oldest one")

    run = trim._Run(SETTINGS, GENESIS, Catalogue(str(tmp_path)), None)  # type: ignore[arg-type]
    for name, stub in (("_bounds", bounds), ("_survey", survey), ("_point", point)):
        monkeypatch.setattr(run, name, stub)
    monkeypatch.setattr(run, "_refuse_few_replicas", nothing)
    monkeypatch.setattr(trim, "first_since", nothing)
    monkeypatch.setattr(trim, "delete_records", delete)
    outcome = await run.trim(0, dry_run=False)
    assert outcome.held.reason == trim.LOGS
    assert outcome.held.text.startswith(f"topic {lost}: ends before offset")
    assert [each.start for each in outcome.logs] == ([0, 0] if lost == "crawl.decisions" else [20, 0])

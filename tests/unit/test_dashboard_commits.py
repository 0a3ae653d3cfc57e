"""Which offsets the dashboard commits: those of folded batches alone, all at once, and of whole folds."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.transport.drivers.aiokafka import Consumer
from faust.types import TP

from stream.dashboard.counting.app import Statistics
from stream.dashboard.counting.committed import BatchRecords, CommittedTransport, _Consumer

VERDICTS = TP("verdicts", 3)


@pytest.fixture
def consumer(tmp_path: Path) -> Any:
    """A consumer with Faust's state, and no connection."""
    app = faust.App("dashboard", store="memory://", datadir=str(tmp_path))
    app.topics = SimpleNamespace(acks_enabled_for=lambda _: True)  # type: ignore[assignment]
    ours = _Consumer.__new__(_Consumer)
    ours.app, ours._folded, ours._waiting_for_ack = app, {}, None
    ours._acked, ours._acked_index = defaultdict(list), defaultdict(set)
    ours._committed_offset, ours._unacked_messages = defaultdict(lambda: None), set()
    return ours


class Message(SimpleNamespace):
    """A message is hashed by its identity, as Faust's are."""

    __hash__ = object.__hash__


def batch(offset: int, *, folded: bool) -> Any:
    """A batch whose last record has this offset."""
    value = BatchRecords(folded=folded)
    return Message(tp=VERDICTS, topic=VERDICTS.topic, offset=offset, value=value, acked=False)


def test_all_folded_batches_are_committed_at_once(consumer: Any) -> None:
    """Faust would commit those up to the first gap, that is one or two a second."""
    for offset in (9, 20, 22, 340):
        assert consumer.ack(batch(offset, folded=True))
    assert consumer._new_offset(VERDICTS) == 341


def test_a_batch_that_was_not_folded_is_not_committed(consumer: Any) -> None:
    assert CommittedTransport.Consumer is _Consumer
    assert not consumer.ack(batch(340, folded=False))
    consumer._acked[VERDICTS].append(340)  # as Faust's compiled streams do by themselves
    assert consumer._new_offset(VERDICTS) is None
    assert consumer.ack(batch(400, folded=True))
    consumer._acked[VERDICTS].append(500)
    assert consumer._new_offset(VERDICTS) == 401


async def test_a_partition_without_a_commit_is_read_from_its_beginning(
    consumer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was fetched while tables were recovered is dropped, and would never be read."""
    changelog = TP("dashboard-urls-changelog", 3)
    committed, sought = {VERDICTS: None, TP("verdicts", 4): 7, changelog: None}, list[TP]()

    async def seek_to_committed(_: Any) -> dict[TP, int | None]:
        return committed

    async def seek_to_beginning(*partitions: TP) -> None:
        sought.extend(partitions)

    monkeypatch.setattr(Consumer, "seek_to_committed", seek_to_committed)
    monkeypatch.setattr(_Consumer, "_is_changelog_tp", lambda _, tp: tp == changelog)
    consumer._thread, consumer._fetched = SimpleNamespace(seek_to_beginning=seek_to_beginning), {}
    assert await consumer.seek_to_committed() == committed
    assert sought == [VERDICTS]


@pytest.mark.parametrize(("generation", "is_open"), [(4, True), (3, False)])
def test_a_fold_ends_with_its_generation_or_its_databases(generation: int, is_open: bool) -> None:
    """Faust closes them while agents still run: rows could not be read, and would be replaced."""
    statistics = Statistics.__new__(Statistics)
    databases = {7: object()} if is_open else {}
    statistics._tables = {"totals": SimpleNamespace(assigned_database=databases.get)}  # type: ignore[dict-item]
    statistics._interrupted_generation = None
    statistics.app = SimpleNamespace(consumer_generation_id=generation)
    assert statistics._note_interruption(7, 3)
    databases[7] = object()
    assert statistics._note_interruption(7, 3), "the next fold of this generation would be ahead of this one"
    statistics.app.consumer_generation_id = 4
    assert not statistics._note_interruption(7, 4)

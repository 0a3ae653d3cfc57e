"""What the dashboard's tables do beyond Faust's own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import faust
import pytest
from faust.exceptions import PartitionsMismatch

from stream.dashboard.counting.faust_internals import in_scope_of
from stream.dashboard.counting.row_tables import RowTable


@dataclass
class Message:
    topic: str
    partition: int


@dataclass
class Event:
    message: Message


def partition_of(counts: dict[str, int], path: Path) -> int | None:
    """Where a row goes while a verdict of partition 3 is folded, and the topics have so many partitions."""
    app = faust.App("dashboard", store="memory://", datadir=str(path))
    app.consumer = SimpleNamespace(topic_partitions=counts.get)
    table = RowTable(app, name="urls", partitions=8)
    event = Event(Message("verdicts", 3))
    with in_scope_of(event):
        return table.partition_for_key(b"key")


@pytest.mark.parametrize("partitions", [0, 8])
def test_a_changelog_without_metadata_yet_is_no_mismatch(partitions: int, tmp_path: Path) -> None:
    assert partition_of({"verdicts": 8, "dashboard-urls-changelog": partitions}, tmp_path) == 3


def test_a_changelog_of_another_number_of_partitions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PartitionsMismatch):
        partition_of({"verdicts": 8, "dashboard-urls-changelog": 4}, tmp_path)

"""What the dashboard's tables do beyond Faust's own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import faust
import pytest
from faust.exceptions import PartitionsMismatch

from stream.dashboard.counting.faust_internals import in_scope_of
from stream.dashboard.counting.row_tables import RowTable


def partition_of(changelog: int, path: Path) -> int | None:
    """Where a row goes while a verdict of partition 3 of 8 is folded, and the changelog has some."""
    app = faust.App("dashboard", store="memory://", datadir=str(path))
    app.consumer = SimpleNamespace(
        topic_partitions={"verdicts": 8, "dashboard-urls-changelog": changelog}.get
    )
    table = RowTable(app, name="urls", partitions=8)
    with in_scope_of(Mock(message=Mock(topic="verdicts", partition=3))):
        return table.partition_for_key(b"key")


def test_a_changelog_of_another_number_of_partitions_is_refused_once_it_is_known(tmp_path: Path) -> None:
    assert [partition_of(each, tmp_path) for each in (0, 8)] == [3, 3]
    with pytest.raises(PartitionsMismatch):
        partition_of(4, tmp_path)

"""What the dashboard's tables do beyond Faust's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from faust.exceptions import PartitionsMismatch

from stream.dashboard.tables import RowTable


def table(counts: dict[str, int]) -> Any:
    """A table whose consumer knows topics with so many partitions."""
    made = RowTable.__new__(RowTable)
    made.app = SimpleNamespace(consumer=SimpleNamespace(topic_partitions=counts.get))
    made.name = "urls"
    made._changelog_topic = SimpleNamespace(get_topic_name=lambda: "changelog")
    made._verified_source_topics_for_partitions = set()
    return made


def test_a_changelog_without_metadata_yet_is_no_mismatch() -> None:
    table({"verdicts": 8, "changelog": 0})._verify_source_topic_partitions("verdicts")
    table({"verdicts": 8, "changelog": 8})._verify_source_topic_partitions("verdicts")


def test_a_changelog_of_another_number_of_partitions_is_refused() -> None:
    with pytest.raises(PartitionsMismatch):
        table({"verdicts": 8, "changelog": 4})._verify_source_topic_partitions("verdicts")

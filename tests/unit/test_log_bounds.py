"""One function says where a log ends, and what of it is hidden (rule 9)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, cast

import pytest
from aiokafka import TopicPartition

from stream.errors import TopicError
from stream.kafka import open_transactions
from stream.kafka.broker_metadata import LogBounds
from stream.kafka.open_transactions import hidden_since, settled_bounds
from stream.kafka.own_requests import PRODUCERS, transaction_at

STREAM: Final = Path(__file__).parents[2] / "stream"
OTHERS: Final = re.compile(
    r"\b(end_offsets|beginning_offsets|last_stable_offset|highwater|get_watermark_offsets|list_offsets"
    r"|seek_to_end|offsets_for_times|OffsetRequest)\b"
)
"""Other ways to ask brokers where a log begins or ends, or which offset has a time."""
ALLOWED: Final = {
    "kafka/broker_metadata.py": {"OffsetRequest"},  # `log_bounds`
    "kafka/log_starts.py": {"OffsetRequest"},  # by time
    "roles/forgetter/status.py": {"offsets_for_times"},
    "kafka/reader.py": {"last_stable_offset"},  # as of the last fetch, for metrics
}
KEY: Final = TopicPartition("crawl.decisions", 0)


def test_nothing_else_asks_where_a_log_ends() -> None:
    found: dict[str, set[str]] = {}
    for path in STREAM.rglob("*.py"):
        if names := set(OTHERS.findall(path.read_text(encoding="utf-8"))):
            found[path.relative_to(STREAM).as_posix()] = names
    assert found == ALLOWED


def test_records_are_hidden_by_a_transaction_that_lasts() -> None:
    before = {KEY: LogBounds(0, stable=4, end=6)}
    assert hidden_since(before, {KEY: LogBounds(0, 4, 1009)}) == [
        "1,005 records from offset 4 of crawl.decisions-0 are hidden by an open transaction"
    ]
    assert not hidden_since(before, {KEY: LogBounds(0, 5, 9)})  # another one, which has just begun
    assert not hidden_since({KEY: LogBounds(0, 4, 4)}, {KEY: LogBounds(0, 4, 9)})
    assert not hidden_since({}, {KEY: LogBounds(0, 4, 9)})


def test_the_producer_of_a_transaction_is_the_one_that_began_at_its_offset() -> None:
    producers = [(7, 0, 3, 1, 0, -1, {}), (8, 1, 0, 1, -1, 40, {}), (9, 0, 0, 1, -1, 41, {})]
    answer = PRODUCERS.RESPONSE_TYPE(0, [(KEY.topic, [(0, 0, None, producers, {})], {})], {})
    assert PRODUCERS.RESPONSE_TYPE.decode(answer.encode()) == answer
    assert transaction_at(answer, 41) == 9
    assert transaction_at(answer, 42) is None
    refused = PRODUCERS.RESPONSE_TYPE(0, [(KEY.topic, [(0, 29, "denied", [], {})], {})], {})
    assert transaction_at(refused, 41) is None


async def test_a_topic_that_is_recreated_while_a_transaction_hides_its_end_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter([LogBounds(0, 90, 100), LogBounds(0, 5, 5)])

    async def bounds(*_: object) -> dict[TopicPartition, LogBounds]:
        return {KEY: next(answers)}

    monkeypatch.setattr(open_transactions, "bounds_soon", bounds)
    monkeypatch.setattr(open_transactions, "PAUSE_SECONDS", 0.0)
    with pytest.raises(TopicError, match=r"topic crawl.decisions partition 0: ends at 5, but ended at 100"):
        await settled_bounds(cast(Any, None), [KEY.topic])

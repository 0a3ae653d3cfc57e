"""The start of a partition without a commit comes from the decisions, read backwards."""

from __future__ import annotations

import msgspec
import pytest

from stream.errors import RefusedError, StateError
from stream.kafka.broker_metadata import LogBounds
from stream.kafka.decided_positions import last_expected
from stream.kafka.ledger_search import FIRST_WINDOW
from stream.messages.decision import (
    LedgerPart,
    SourceProgress,
    encode_decisions,
    ledger_record,
)
from stream.roles.worker.backlog import Backlog, PagesTopic
from stream.roles.worker.positions import begin
from tests.topic_in_memory import CountingTopic

SOURCE = PagesTopic("a-cluster", "pages", "ab" * 16)
KNOWN = 7
"""How many partitions a ledger record names."""


def key(partition: int) -> tuple[str, str, int]:
    return SOURCE.cluster_id, SOURCE.topic_id, partition


def sources(expected: dict[int, int]) -> list[SourceProgress]:
    return [
        SourceProgress(SOURCE.cluster_id, SOURCE.topic, SOURCE.topic_id, partition, offset, 0)
        for partition, offset in expected.items()
    ]


def ledger(number: int, parts: int = 1) -> list[bytes]:
    """A ledger record, in which partition n was judged up to 100 + n, or its parts."""
    named, size = sources({n: 100 + n for n in range(KNOWN)}), -(-KNOWN // parts)
    return [
        encode_decisions(
            ledger_record("cd" * 16, "o", number, b"", 0, named[at : at + size], LedgerPart(at, KNOWN))
        )
        for at in range(0, KNOWN, size)
    ]


def decision(number: int, expected: dict[int, int]) -> bytes:
    """One that moved these partitions."""
    empty = ledger_record("cd" * 16, "o", number + 1, b"", 0, sources(expected), LedgerPart(0, 0))
    return encode_decisions(msgspec.structs.replace(empty, start=number, ledger=None))


def decisions(count: int) -> CountingTopic:
    """Partition 0 moves with each, partition 1 with the first alone."""
    values = [decision(n, {0: 10 * n} | ({1: 5} if n == 0 else {})) for n in range(count)]
    return CountingTopic("decisions", values, at_once=10)


async def test_sources_at_work_are_found_at_the_end() -> None:
    topic = decisions(1000)
    assert await last_expected(topic, [key(0)]) == {key(0): 9990}
    assert topic.read <= FIRST_WINDOW + 10


@pytest.mark.parametrize("count", [0, 1, 9, FIRST_WINDOW, FIRST_WINDOW + 1, 3 * FIRST_WINDOW, 1000])
async def test_sources_that_moved_long_ago_are_found_and_unknown_ones_are_not(count: int) -> None:
    topic = decisions(count)
    found = await last_expected(topic, [key(0), key(1), key(2)])
    assert found == ({key(0): 10 * (count - 1), key(1): 5} if count else {})
    assert topic.read <= 1.2 * count + 10


@pytest.mark.parametrize("parts", [1, 2, 7])
@pytest.mark.parametrize("after", [0, 1, 50, 63, 64, 65, 300])
async def test_nothing_before_the_newest_ledger_record_is_read(parts: int, after: int) -> None:
    """Windows may end between the parts of a ledger."""
    values = [decision(n, {0: n, 9: n}) for n in range(10_000)] + ledger(10_000, parts)
    values += [decision(10_000 + n, {0: 200 + n}) for n in range(after)]
    topic = CountingTopic("decisions", values, at_once=10)
    found = await last_expected(topic, [key(0), key(3), key(6), key(8)])
    assert found == {key(0): 199 + after if after else 100, key(3): 103, key(6): 106}
    assert topic.read <= 3 * (after + parts) + FIRST_WINDOW + 10


@pytest.mark.parametrize("parts", [1, 3])
async def test_a_topic_may_begin_with_a_ledger_record(parts: int) -> None:
    values = ledger(50, parts) + [decision(50 + n, {0: 200 + n}) for n in range(100)]
    topic = CountingTopic("decisions", values, 1000, at_once=10)
    assert await last_expected(topic, [key(0), key(1), key(8)]) == {key(0): 299, key(1): 101}


@pytest.mark.parametrize("count", [0, 1, 100])
async def test_a_topic_that_lost_records_behind_its_last_ledger_is_refused(count: int) -> None:
    values = ledger(0, 3)[1:] + [decision(n, {0: n}) for n in range(count)] if count else []
    topic = CountingTopic("decisions", values, 1000, at_once=10)
    if count:
        assert await last_expected(topic, [key(0)]) == {key(0): count - 1}
    with pytest.raises(StateError, match=r"topic decisions: begins at offset 1000 and has no ledger record"):
        await last_expected(topic, [key(1)])


async def test_records_may_be_deleted_while_they_are_read() -> None:
    class Trimmed(CountingTopic):
        def seek(self, offset: int) -> None:
            if offset < 9000:
                self.delete_before(9000)
            super().seek(offset)

    values = [decision(n, {0: n}) for n in range(9000)] + ledger(9000)
    values += [decision(n, {0: n}) for n in range(9000, 10_000)]
    topic = Trimmed("decisions", values, at_once=10)
    assert await last_expected(topic, [key(0), key(1), key(8)]) == {key(0): 9999, key(1): 101}


async def test_all_that_there_was_at_the_beginning_may_be_deleted_meanwhile() -> None:
    """A trim to a ledger record that is newer than the search."""

    class Trimmed(CountingTopic):
        def seek(self, offset: int) -> None:
            if offset < 900 and self._values is values:
                self._values = [*values, *ledger(1000)]
                self.delete_before(1000)
            super().seek(offset)

    values = [decision(n, {0: n}) for n in range(1000)]
    topic = Trimmed("decisions", values, at_once=10)
    assert await last_expected(topic, [key(0), key(1), key(8)]) == {key(0): 100, key(1): 101}


BOUNDS = LogBounds(3, 20, 20)


@pytest.mark.parametrize(
    ("read", "judged", "start", "ranges"),
    [
        (None, None, 3, [(3, 3, True, False)]),
        (None, 8, 8, []),
        (None, 20, 20, []),
        (None, 3, 3, [(3, 3, True, False)]),
        (None, 1, 3, [(1, 3, True, True)]),
        (9, None, 9, []),
        (3, None, 3, [(3, 3, True, False)]),
    ],
)
def test_partition_begins_where_its_group_or_else_the_judge_has_come_to(
    read: int | None, judged: int | None, start: int, ranges: list[tuple[int, int, bool, bool]]
) -> None:
    backlog = Backlog(SOURCE)
    assert begin(backlog, 0, read, judged, BOUNDS) == start
    batch = backlog.take()
    declared = batch.ranges if batch else []
    assert [(each.start, each.end, each.opening, each.lost) for each in declared] == ranges


@pytest.mark.parametrize(
    ("read", "judged", "said"),
    [(21, None, "group offset 21"), (None, 21, "offset 21, up to which pages were")],
)
def test_partition_whose_log_ends_before_that_is_refused(
    read: int | None, judged: int | None, said: str
) -> None:
    with pytest.raises(RefusedError, match=said):
        begin(Backlog(SOURCE), 0, read, judged, BOUNDS)

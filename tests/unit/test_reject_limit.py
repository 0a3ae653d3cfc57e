"""Rule 5: a producer's fault on all partitions pauses a worker; content of web pages never does."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from stream.fingerprint.row import Row, Status
from stream.messages.journal import SourceRange
from stream.messages.reasons import PRODUCER, REASONS
from stream.roles.worker.backlog import JournalBatch
from stream.roles.worker.reject_limit import MOST_PAUSE_SECONDS, PAUSE_SECONDS, WINDOW, RejectLimit

FAULT = "malformed_json"


def batch(partition: int, reasons: Iterable[str | None]) -> JournalBatch:
    rows = [
        Row(Status.READY if reason is None else Status.REJECTED, None, None, reason=reason)
        for reason in reasons
    ]
    ranges = [SourceRange("c", "pages", "id", partition, 0, len(rows), len(rows))]
    return JournalBatch(ranges=ranges, rows=rows)


def limit_over(partitions: int, limit: float = 0.9) -> RejectLimit:
    made = RejectLimit(limit)
    made.assign(range(partitions))
    return made


def test_a_fault_of_the_producer_in_every_partition_is_refused() -> None:
    limit = limit_over(8)
    refused = [limit.refuses(batch(n % 8, [FAULT] * 50)) for n in range(20)]
    assert refused == [False] * 19 + [True]
    assert limit.why is not None
    assert "reject_limit: 100.0% of the last 1000 pages" in limit.why
    assert FAULT in limit.why


@pytest.mark.parametrize("reason", sorted(set(REASONS) - PRODUCER))
def test_what_strangers_can_cause_never_counts(reason: str) -> None:
    limit = limit_over(1)
    assert not any(limit.refuses(batch(0, [reason] * 50)) for _ in range(100))


def test_one_partition_alone_stops_nothing() -> None:
    limit = limit_over(4)
    for _ in range(100):
        assert not limit.refuses(batch(0, [FAULT] * 50))
        assert not limit.refuses(batch(1, [None] * 5))


def test_a_worker_of_one_partition_looks_at_that() -> None:
    limit = limit_over(1)
    assert not limit.refuses(batch(0, [FAULT] * (WINDOW - 1)))
    assert limit.refuses(batch(0, [FAULT]))


def test_a_share_up_to_the_limit_is_taken() -> None:
    limit = limit_over(1, 0.5)
    assert not any(limit.refuses(batch(0, [FAULT, None] * 25)) for _ in range(50))
    assert any(limit.refuses(batch(0, [FAULT, FAULT, None] * 25)) for _ in range(50))
    off = limit_over(1, 1.0)
    assert not any(off.refuses(batch(0, [FAULT] * 50)) for _ in range(50))


def test_the_next_batch_is_a_try_and_counting_begins_anew_when_it_passes() -> None:
    limit = limit_over(1)
    assert limit.refuses(batch(0, [FAULT] * WINDOW))
    assert limit.refuses(batch(0, [FAULT])), "still the same pages"
    assert not limit.refuses(JournalBatch()), "what declares an opening has no pages, and proves nothing"
    assert limit.why
    assert not limit.refuses(batch(0, [None]))
    assert limit.why is None
    assert not limit.refuses(batch(0, [FAULT] * (WINDOW - 1)))
    assert limit.refuses(batch(0, [FAULT] * WINDOW))


def test_pauses_grow_until_the_stream_is_sound_again() -> None:
    limit = limit_over(1)
    pauses = [limit.pause() for _ in range(8)]
    assert pauses[:3] == [PAUSE_SECONDS, 2 * PAUSE_SECONDS, 4 * PAUSE_SECONDS]
    assert pauses[-1] == limit.pause() == MOST_PAUSE_SECONDS
    assert not limit.refuses(batch(0, [None] * WINDOW))
    assert limit.pause() == PAUSE_SECONDS


def test_partitions_that_went_away_are_not_looked_at() -> None:
    limit = limit_over(2)
    assert not limit.refuses(batch(1, [FAULT] * WINDOW))
    limit.assign([0])
    assert not limit.refuses(batch(0, [None] * WINDOW))
    assert limit.why is None

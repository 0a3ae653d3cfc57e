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


@pytest.mark.parametrize(
    ("partitions", "share", "batches", "refused"),
    [
        (8, 0.9, [(n % 8, [FAULT] * 50) for n in range(20)], 19),
        (4, 0.9, [(0, [FAULT] * 50), (1, [None] * 5)] * 100, None),
        (1, 0.9, [(0, [FAULT] * (WINDOW - 1)), (0, [FAULT])], 1),
        (1, 0.5, [(0, [FAULT, None] * 25)] * 50, None),
        (1, 0.5, [(0, [FAULT, FAULT, None] * 25)] * 50, 3),
        (1, 1.0, [(0, [FAULT] * 50)] * 50, None),
    ],
    ids=["all partitions", "one partition of four", "the only one", "half", "two of three", "no limit"],
)
def test_a_fault_of_the_producer_is_refused_above_the_limit_in_all_partitions(
    partitions: int, share: float, batches: list[tuple[int, list[str | None]]], refused: int | None
) -> None:
    """`refused` is the number of the first batch that is."""
    limit = limit_over(partitions, share)
    numbers = (number for number, each in enumerate(batches) if limit.refuses(batch(*each)))
    assert next(numbers, None) == refused
    assert (limit.why is None) == (refused is None)
    if partitions == 8:
        assert "reject_limit: 100.0% of the last 1000 pages" in str(limit.why)
        assert FAULT in str(limit.why)


@pytest.mark.parametrize("reason", sorted(set(REASONS) - PRODUCER))
def test_what_strangers_can_cause_never_counts(reason: str) -> None:
    limit = limit_over(1)
    assert not any(limit.refuses(batch(0, [reason] * 50)) for _ in range(100))


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

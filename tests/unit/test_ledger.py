"""Which rows are admitted, range by range (rules 1, 4 and 7)."""

from __future__ import annotations

import pytest

from stream.fingerprint.row import Row, Status
from stream.fingerprint.scheme import Scheme
from stream.judge.state.ledger import Admission, Ledger
from stream.messages.journal import Rows, SourceRange


def part(start: int, end: int, *, opening: bool = False, lost: bool = False) -> Rows:
    offsets = [] if lost else list(range(start, end))
    source = SourceRange("c", "pages", "0" * 32, 0, start, end, len(offsets), opening, lost)
    rows = [Row(Status.REJECTED, None, None, reason="test") for _ in offsets]
    return Rows.of(Scheme(), [source], rows, offsets, [None] * len(offsets))


def admitted(ledger: Ledger, *records: Rows) -> tuple[list[int], Admission]:
    """Source offsets that were admitted; applied as the judge does after each batch."""
    admission = Admission()
    found: list[int] = []
    for rows in records:
        found += rows.offset[ledger.admit(rows, admission)].tolist()
    ledger.apply(admission.progress.values())
    return found, admission


FIRST, EMPTY = part(0, 3, opening=True), part(20, 20, opening=True)


@pytest.mark.parametrize(
    ("records", "found", "redelivered", "gaps", "expected", "lost"),
    [
        ([FIRST], [0, 1, 2], 0, [], 3, 0),
        ([FIRST, part(1, 5)], [0, 1, 2, 3, 4], 2, [], 5, 0),
        ([FIRST, part(5, 7)], [0, 1, 2], 0, [3], 3, 0),
        ([FIRST, part(5, 7), part(3, 7)], [0, 1, 2, 3, 4, 5, 6], 0, [3], 7, 0),
        ([part(9, 9, opening=True), part(9, 11)], [9, 10], 0, [], 11, 0),
        ([FIRST, part(9, 9, opening=True)], [0, 1, 2], 0, [], 9, 6),
        ([FIRST, part(9, 9, opening=True), part(9, 11), EMPTY], [0, 1, 2, 9, 10], 0, [], 20, 6 + 9),
    ],
    ids=["first", "redelivered", "gap", "behind a gap", "position", "lost", "lost twice"],
)
@pytest.mark.parametrize("together", [False, True])
def test_each_offset_is_admitted_once_and_in_order(
    records: list[Rows],
    found: list[int],
    redelivered: int,
    gaps: list[int],
    expected: int,
    lost: int,
    together: bool,
) -> None:
    """Whether one batch has all records or each has one. What an empty opening leaves out is lost, unless it
    is the position of a new partition."""
    ledger = Ledger()
    batches = [admitted(ledger, *each) for each in ([records] if together else [[each] for each in records])]
    assert [offset for offsets, _ in batches for offset in offsets] == found
    assert sum(admission.redelivered for _, admission in batches) == redelivered
    assert [gap.expected for _, admission in batches for gap in admission.gaps] == gaps
    (progress,) = ledger.progress.values()
    assert (progress.expected, progress.lost) == (expected, lost)


@pytest.mark.parametrize(
    ("judged", "lost"), [(None, 5), (4, 11), (10, 5), (12, 3), (15, 0), (20, 0)],
    ids=["unknown partition", "earlier pages missing", "all lost", "partly judged", "judged", "beyond"],
)  # fmt: skip
def test_a_loss_at_the_log_start_is_counted_wherever_the_judge_is(judged: int | None, lost: int) -> None:
    ledger = Ledger()
    if judged is not None:
        admitted(ledger, part(0, judged, opening=True))
    declared = part(10, 15, opening=True, lost=True)
    found, admission = admitted(ledger, declared, declared, part(15, 17))
    assert admission.gaps == []
    assert found == list(range(max(15, judged or 0), 17))
    (progress,) = ledger.progress.values()
    assert (progress.expected, progress.lost) == (max(17, judged or 0), lost)

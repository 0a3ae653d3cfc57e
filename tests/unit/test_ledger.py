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


def test_a_redelivered_range_is_trimmed_to_what_is_new() -> None:
    ledger = Ledger()
    assert admitted(ledger, part(0, 3, opening=True))[0] == [0, 1, 2]
    found, admission = admitted(ledger, part(1, 5))
    assert (found, admission.redelivered) == ([3, 4], 2)


def test_a_range_beyond_the_expected_offset_waits() -> None:
    ledger = Ledger()
    admitted(ledger, part(0, 3, opening=True))
    found, admission = admitted(ledger, part(5, 7))
    assert found == []
    assert [gap.expected for gap in admission.gaps] == [3]
    assert admitted(ledger, part(3, 7))[0] == [3, 4, 5, 6]


def test_an_empty_opening_above_the_expected_offset_counts_what_is_gone_and_goes_on() -> None:
    ledger = Ledger()
    admitted(ledger, part(0, 3, opening=True))
    _, admission = admitted(ledger, part(9, 9, opening=True))
    assert [(each.expected, each.lost) for each in admission.progress.values()] == [(9, 6)]
    found, admission = admitted(ledger, part(9, 11))
    assert (found, admission.gaps) == ([9, 10], [])


def test_an_empty_opening_of_a_new_partition_is_its_position() -> None:
    ledger = Ledger()
    admitted(ledger, part(9, 9, opening=True))
    found, admission = admitted(ledger, part(9, 11))
    assert (found, admission.gaps) == ([9, 10], [])


def test_an_empty_opening_within_one_batch_counts_too() -> None:
    ledger = Ledger()
    found, admission = admitted(
        ledger, part(0, 3, opening=True), part(9, 9, opening=True), part(9, 11), part(20, 20, opening=True)
    )
    assert found == [0, 1, 2, 9, 10]
    assert [(each.expected, each.lost) for each in admission.progress.values()] == [(20, 6 + 9)]
    assert admission.gaps == []


@pytest.mark.parametrize(
    ("judged", "lost"), [(None, 5), (4, 11), (10, 5), (12, 3), (15, 0), (20, 0)],
    ids=["unknown partition", "earlier pages missing", "all lost", "partly judged", "judged", "beyond"],
)  # fmt: skip
def test_a_loss_at_the_log_start_is_counted_wherever_the_judge_is(judged: int | None, lost: int) -> None:
    """Also if it is declared again."""
    ledger = Ledger()
    if judged is not None:
        admitted(ledger, part(0, judged, opening=True))
    declared = part(10, 15, opening=True, lost=True)
    found, admission = admitted(ledger, declared, declared, part(15, 17))
    assert admission.gaps == []
    assert found == list(range(max(15, judged or 0), 17))
    (progress,) = ledger.progress.values()
    assert (progress.expected, progress.lost) == (max(17, judged or 0), lost)

"""Pending verdicts of the dashboard: when they are folded, how they are split, and when they are dropped."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from stream.dashboard.counting import ends as ends_of_rows
from stream.dashboard.counting import latest_verdicts
from stream.dashboard.counting import pending as pendings
from stream.dashboard.counting.ends import FoldedOffsets
from stream.dashboard.counting.latest_verdicts import LatestVerdicts, VerdictFilter
from stream.dashboard.counting.pending import Pending
from stream.dashboard.counting.verdict_columns import VerdictColumns, batch_of
from tests.kafka.dashboard_helpers import VerdictMaker
from tests.waiting import HANG_SECONDS


def batch(first: int, count: int, at: float | None = None) -> VerdictColumns:
    """Verdicts of partition 2 at every other offset from `first` on."""
    values = [msgspec.json.encode(each) for each in VerdictMaker(at=at).some(count)]
    return batch_of(2, range(first, first + 2 * count, 2), values)


def ends_at(*offsets: int) -> FoldedOffsets:
    ends = FoldedOffsets()
    for offset in offsets:
        ends.add(offset)
    return ends


@pytest.mark.parametrize(
    ("ends", "sums"),
    [
        ((), [(10, 28)]),
        ((14,), [(3, 14), (7, 28)]),
        ((14, 4), [(3, 14), (7, 28)]),  # an end before the first
        ((18,), [(5, 18), (5, 28)]),  # between two batches
        ((19,), [(5, 18), (5, 28)]),  # the same, where no verdict is
        ((28, 99), [(10, 28)]),
    ],
)
def test_no_sum_reaches_over_the_end_of_a_row(ends: tuple[int, ...], sums: list[tuple[int, int]]) -> None:
    pending = Pending(1)
    for first in (10, 20):
        pending.add(None, batch(first, 5), ends_at(*ends))
    assert [(each.verdicts, each.last) for each in pending.sums[2]] == sums


async def test_what_is_idle_is_folded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pendings, "FOLD_SECONDS", (1e6, 1e6))
    pending = Pending(1)
    due = asyncio.create_task(pending.wait_until_due())
    pending.add(None, batch(10, 5), FoldedOffsets())
    await pending.wait_for_room(idle=False)
    await asyncio.sleep(0)
    assert not due.done()
    await pending.wait_for_room(idle=True)
    await asyncio.wait_for(due, HANG_SECONDS)


@pytest.mark.parametrize("limit", ["FOLD_VERDICTS", "FOLD_BYTES"])
async def test_what_is_full_waits_until_it_is_taken(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its verdicts, or by the bytes of their URLs."""
    some = batch(10, 5)
    monkeypatch.setattr(pendings, limit, 5 if limit == "FOLD_VERDICTS" else some.nbytes)
    monkeypatch.setattr(pendings, "FOLD_SECONDS", (1e6, 1e6))
    pending = Pending(1)
    pending.add(None, some, FoldedOffsets())
    added = asyncio.create_task(pending.wait_for_room(idle=False))
    await asyncio.sleep(0)
    assert not added.done()
    await asyncio.wait_for(pending.wait_until_due(), HANG_SECONDS)
    await asyncio.wait_for(added, HANG_SECONDS)


async def test_figures_that_are_not_behind_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pendings, "FOLD_SECONDS", (0.0, 1e6))
    pending = Pending(1)
    pending.add(None, batch(10, 5, time.time() + 60), FoldedOffsets())
    await asyncio.wait_for(pending.wait_until_due(), HANG_SECONDS)


async def test_what_is_dropped_keeps_nobody_waiting() -> None:
    pending, failed = Pending(1), asyncio.Event()

    async def send() -> None:
        failed.set()
        raise ConnectionError

    pending.send(send())
    waiting = asyncio.create_task(pending.wait_until_due())
    pending.drop()
    await asyncio.wait_for(waiting, HANG_SECONDS)
    await asyncio.wait_for(failed.wait(), HANG_SECONDS)


async def test_what_fails_is_raised_before_anything_is_acknowledged() -> None:
    async def send() -> None:
        raise ConnectionError

    pending = Pending(1)
    pending.send(send())
    with pytest.raises(ConnectionError):
        await pending.finish_sends()


def test_the_largest_ends_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends_of_rows, "MOST", 3)
    ends = ends_at(9, 1, 5, 1, 7)
    assert ends.between(1, 9) == [1, 5, 7]
    for offset in (11, 3, 13):
        ends.add(offset)
    assert ends.last == 13
    assert ends.between(0, 99) == [9, 11, 13]
    assert ends.between(11, 13) == [11]


def test_latest_verdicts_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    some = [batch(100 * place, 5) for place in range(4)]
    monkeypatch.setattr(latest_verdicts, "KEPT_BYTES", some[0].nbytes + some[1].nbytes)
    latest = LatestVerdicts()
    for each in some:
        latest.tell(each)
    assert [each.batch for each in latest.latest(VerdictFilter(), 100, None)] == [some[3]] * 5 + [some[2]] * 5

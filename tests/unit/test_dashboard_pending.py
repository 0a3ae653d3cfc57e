"""Pending verdicts of the dashboard: when they are folded."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from stream.dashboard.counting import latest_verdicts
from stream.dashboard.counting import pending as pendings
from stream.dashboard.counting.latest_verdicts import LatestVerdicts, VerdictFilter
from stream.dashboard.counting.pending import Pending
from stream.dashboard.counting.verdict_columns import VerdictColumns, batch_of
from tests.kafka.dashboard_helpers import VerdictMaker
from tests.waiting import HANG_SECONDS


def batch(first: int, count: int, at: float | None = None) -> VerdictColumns:
    """Verdicts of partition 2 at every other offset from `first` on."""
    values = [msgspec.json.encode(each) for each in VerdictMaker(at=at).some(count)]
    return batch_of(2, range(first, first + 2 * count, 2), values)


async def test_what_is_idle_is_folded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pendings, "FOLD_SECONDS", (1e6, 1e6))
    pending = Pending()
    due = asyncio.create_task(pending.wait_until_due())
    pending.add(batch(10, 5), 0)
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
    pending = Pending()
    pending.add(some, 0)
    added = asyncio.create_task(pending.wait_for_room(idle=False))
    await asyncio.sleep(0)
    assert not added.done()
    await asyncio.wait_for(pending.wait_until_due(), HANG_SECONDS)
    await asyncio.sleep(0)
    assert not added.done(), "others may write still"
    pending.taken.set()
    await asyncio.wait_for(added, HANG_SECONDS)


async def test_figures_that_are_not_behind_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pendings, "FOLD_SECONDS", (0.0, 1e6))
    pending = Pending()
    pending.add(batch(10, 5, time.time() + 60), 0)
    await asyncio.wait_for(pending.wait_until_due(), HANG_SECONDS)


def test_latest_verdicts_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    some = [batch(100 * place, 5) for place in range(4)]
    monkeypatch.setattr(latest_verdicts, "KEPT_BYTES", some[0].nbytes + some[1].nbytes)
    latest = LatestVerdicts()
    for each in some:
        latest.tell(each)
    assert [each.batch for each in latest.latest(VerdictFilter(), 100, None)] == [some[3]] * 5 + [some[2]] * 5

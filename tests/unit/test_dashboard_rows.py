"""The dashboard's arithmetic: windows, rows and what is shown of them, and when verdicts are folded."""

from __future__ import annotations

import asyncio
import time

import msgspec
import openapi_spec_validator
import pytest

from stream.dashboard.counting import latest_verdicts, view
from stream.dashboard.counting import pending as pendings
from stream.dashboard.counting.latest_verdicts import LatestVerdicts, VerdictFilter
from stream.dashboard.counting.pending import Pending
from stream.dashboard.counting.rows import URLS_KEPT, ClusterRow, Counts
from stream.dashboard.counting.verdict_columns import (
    PAGES_KEPT,
    ClusterNews,
    VerdictColumns,
    VerdictFields,
    batch_of,
    counted_host,
    normal,
)
from stream.dashboard.counting.view import View
from stream.dashboard.counting.windows import DAY, HOSTS, HOUR, MOST_POINTS, TOTALS, WindowPlan, plan
from stream.dashboard.lookup.lookup import cluster_pages
from stream.dashboard.web.openapi import document
from stream.errors import RecordError
from tests.kafka.dashboard_helpers import VerdictMaker
from tests.waiting import HANG_SECONDS

NOW = 1_900_000_000.0
LONG = "http://" + "a." * 200 + "example/"
"""A URL whose host is no name: it may have 8,000 characters, and 200,000 hosts are in memory."""


@pytest.mark.parametrize("length", [60, 900, HOUR, 6 * HOUR, DAY, 7 * DAY, 30 * DAY, 300 * DAY])
@pytest.mark.parametrize("kept", [TOTALS, HOSTS])
def test_a_range_is_answered_by_whole_windows_that_are_still_kept(length: int, kept: dict[int, int]) -> None:
    found = plan(NOW - length, NOW, kept, NOW)
    assert found.start <= NOW - length
    assert found.end >= NOW
    assert found.start % found.step == found.end % found.step == found.step % found.size == 0
    assert found.points <= MOST_POINTS + 61
    assert found.size == max(kept) or found.start > NOW - kept[found.size] - found.step


def test_a_value_that_is_no_verdict_is_named() -> None:
    good = msgspec.json.encode(VerdictMaker().one())
    with pytest.raises(RecordError, match=r"verdicts\[3\] offset 8"):
        batch_of(3, [7, 8, 9], [good, good[:-1], good])
    with pytest.raises(RecordError, match=r"verdicts\[3\] offset 9"):
        batch_of(3, [7, 9], [good, good + b"," + good])


def test_all_ends_with_the_last_verdict_as_finely_as_windows_tell() -> None:
    """After days without pages, the range ends with the last verdict."""
    seen = _view()
    assert seen.last() is None
    early, late = 1_767_355_200, 1_767_358_803
    for moment in (early, late):
        for size in (5, 60, HOUR, DAY):
            seen.show((moment // size * size, size), "", Counts({"unique": 1}))
    assert seen.last() == 1_767_358_805
    found = seen.plan(None, None, None)
    assert found.start <= early
    assert late < found.end <= late + found.step
    # The fine windows are kept for some hours only.
    seen.totals = {window: counts for window, counts in seen.totals.items() if window[1] >= HOUR}
    assert seen.last() == 1_767_358_800 + HOUR


def test_a_host_dropped_from_memory_is_shown_again_when_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "MOST_HOSTS", 10)
    window, state = (int(NOW) // HOUR * HOUR, HOUR), dict[str, Counts]()

    def count(host: str, duplicates: int) -> None:
        state[host] = Counts(
            {"duplicate": duplicates + state.get(host, Counts()).verdicts.get("duplicate", 0)}
        )
        seen.show(window, host, state[host])

    seen = View(host_in_state=lambda _, host: state[host])
    for i in range(40):
        count(f"h{i}", i % 7 + 1)
    for i in range(40):
        count(f"h{i}", 1)
    _, found = seen.ranking(window[0] - 9 * DAY, window[0] + HOUR)
    assert seen.pruned
    assert all(counts == state[host] for host, counts in found.items())
    largest = max(counts.verdicts["duplicate"] for counts in state.values())
    assert largest == max(counts.verdicts["duplicate"] for counts in found.values())
    dropped = min(set(state) - set(found))
    assert seen.series(WindowPlan(window[0], window[0] + HOUR, HOUR, HOUR), dropped) == [state[dropped]]


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://A.example:80/x", "a.example"),
        ("", "(no host)"),
        ("no url", "(no host)"),
        ("http://[::1", "(no host)"),
        (LONG, "(no host)"),
        ("http://[::1]:8080/", "[::1]"),
        ("http://a.example./x", "a.example"),
    ],
)
def test_a_host_is_counted_under_the_name_by_which_it_is_forgotten(url: str, host: str) -> None:
    assert counted_host(normal(url)) == host
    verdict = msgspec.structs.replace(VerdictMaker().one(), url=url)
    assert batch_of(0, [0], [msgspec.json.encode(verdict)]).host_name(0) == host


def test_the_contract_is_valid_openapi() -> None:
    contract = msgspec.json.decode(msgspec.json.encode(document()))
    openapi_spec_validator.validate(contract)


def test_anchors_of_long_urls_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "MOST_ANCHORS", 1_000)
    seen = _view()
    for cluster in range(100):
        seen.show_cluster(str(cluster), ClusterRow(cluster, "x" * 100))
        assert sum(len(each.anchor) for each in seen.clusters.values()) <= 1_000
    assert max(each.members for each in seen.clusters.values()) == 99
    for _ in range(20):  # it is counted once, however often it is shown
        seen.show_cluster("99", ClusterRow(99, "x" * 100))
    assert len(seen.clusters) > 5


def test_a_cluster_is_shown_once_a_page_joined_it_and_its_anchor_when_that_is_named() -> None:
    seen, row, page = _view(), ClusterRow(), _fields("http://a.example/")
    for news, shown in (
        (ClusterNews(0, None), None),
        (ClusterNews(2, None, [page, page]), (2, "")),
        (ClusterNews(1, "http://anchor.example/", [page]), (3, "http://anchor.example/")),
        (ClusterNews(0, None), (3, "http://anchor.example/")),
    ):
        row.add(news)
        seen.show_cluster("c", row)
        found = seen.clusters.get("c")
        assert (found and (found.members, found.anchor)) == shown
    pages = cluster_pages("c", row)
    assert pages is not None
    assert (pages.anchor, pages.pages, len(pages.members)) == ("http://anchor.example/", 4, 3)
    assert cluster_pages("c", ClusterRow(anchor="http://anchor.example/")) is None


def test_clusters_of_long_urls_keep_few_pages() -> None:
    """A row is written again with each fold that has news of it."""
    row = ClusterRow()
    for _ in range(5):
        row.add(ClusterNews(3, None, [_fields("u" * 700) for _ in range(3)]))
    assert row.members == 15
    assert [len(each.url or "") for each in row.pages] == [700] * (URLS_KEPT // 700)
    row = ClusterRow()
    row.add(ClusterNews(99, None, [_fields("u")] * 99))
    assert len(row.pages) == PAGES_KEPT


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
    kept = [batch.record(row) for batch in (some[3], some[2]) for row in reversed(range(5))]
    assert [each.verdict for each in latest.latest(VerdictFilter(), 100)] == kept


def _view() -> View:
    return View(lambda _window, _host: Counts())


def _fields(url: str) -> VerdictFields:
    return VerdictFields("1.2.3", url, "duplicate", "1.2.1", None, 0, 1.0, "2026-01-02T03:04:05.000Z", None)

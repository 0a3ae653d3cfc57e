"""The dashboard's arithmetic: windows, rows that count once, sums over partitions."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec
import openapi_spec_validator
import pytest
from openapi_spec_validator.validation.exceptions import OpenAPIValidationError

from stream.dashboard.counting import fold, view
from stream.dashboard.counting.committed import BEFORE, of_changelogs_alone, records_skipped
from stream.dashboard.counting.ends import FoldedOffsets
from stream.dashboard.counting.fold import Folder, window_row
from stream.dashboard.counting.pending import Pending
from stream.dashboard.counting.rows import URLS_KEPT, ClusterRow, Counts, fold_cluster
from stream.dashboard.counting.verdict_columns import (
    NO_HOST,
    ClusterNews,
    Shape,
    VerdictFields,
    batch_of,
    host_of,
    normal,
)
from stream.dashboard.counting.view import View
from stream.dashboard.counting.windows import DAY, HOSTS, HOUR, MOST_POINTS, TOTALS, Calendar, plan
from stream.dashboard.lookup.lookup import cluster_pages
from stream.dashboard.web.openapi import document
from stream.errors import RecordError
from tests.kafka.dashboard_helpers import VerdictMaker, by_kind

NOW = 1_900_000_000.0


@pytest.mark.parametrize("length", [60, 900, HOUR, 6 * HOUR, DAY, 7 * DAY, 30 * DAY, 300 * DAY])
@pytest.mark.parametrize("kept", [TOTALS, HOSTS])
def test_a_range_is_answered_by_whole_windows_that_are_still_kept(length: int, kept: dict[int, int]) -> None:
    found = plan(NOW - length, NOW, kept, NOW)
    assert found.start <= NOW - length
    assert found.end >= NOW
    assert found.start % found.step == found.end % found.step == found.step % found.size == 0
    assert found.points <= MOST_POINTS + 61
    assert found.size == max(kept) or found.start > NOW - kept[found.size] - found.step


def test_an_event_falls_into_one_window_of_each_size() -> None:
    calendar = Calendar(TOTALS)
    for start, end in calendar.ranges(NOW + 3.7):
        assert start <= NOW + 3.7 < end
        assert end - start in TOTALS
        over = end + TOTALS[int(end - start)]
        assert [calendar.expired((start, end), each) for each in (NOW, over - 1, over)] == [
            False,
            False,
            True,
        ]


class _Tables(dict[bytes, bytes]):
    """A table in memory that fails after a number of writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes_left = 0

    def rows(self, partition: int, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def write(self, partition: int, rows: Mapping[bytes, bytes]) -> None:
        if not self.writes_left:
            raise ConnectionError
        self.writes_left -= 1
        self.update(rows)

    def ends(self) -> set[int]:
        return {msgspec.msgpack.decode(value)[0] for value in self.values()}


@pytest.mark.parametrize("seed", range(8))
def test_verdicts_that_come_again_are_counted_once_however_they_are_cut(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold, "SLICE", 3)
    rng, made = random.Random(seed), VerdictMaker(seed).some(240)
    offsets = sorted(rng.sample(range(1000), len(made)))
    batch = batch_of(2, offsets, [msgspec.json.encode(each) for each in made])
    tables, view = (_Tables(), _Tables(), _Tables()), View()
    folder, ends, done = Folder(*tables, view), FoldedOffsets(), 0
    while done < len(offsets):
        # What was folded to the end is not committed yet; what was interrupted was written in part.
        first = rng.randrange(max(0, done - 60), done + 1)
        last = min(len(offsets), done + rng.randrange(1, 40))
        for table in tables:
            table.writes_left = rng.choice((rng.randrange(4), 10**6))
        pending = Pending(1)
        edges = sorted({first, last, *(rng.randrange(first, last) for _ in range(2))})
        for begin, end in pairwise(edges):
            pending.add(None, batch.between(offsets[begin], offsets[end - 1]), ends)
        try:
            for each in pending.sums[2]:
                ends.add(each.last)
                for _ in folder.fold(2, each):
                    pass
            done = last
        except ConnectionError:  # a new process reads the rows
            ends = FoldedOffsets()
            for offset in set[int]().union(*(table.ends() for table in tables)):
                ends.add(offset)
    kinds = {kind: n for kind, n in by_kind(made).items() if n}
    for size in TOTALS:
        assert _sum(each for (_, its), each in view.totals.items() if its == size).verdicts == kinds
    stored: dict[str, Counts] = {}
    for key, value in (*tables[0].items(), *tables[1].items()):
        name, (start, end) = msgspec.json.decode(key)
        row = window_row(value)
        stored.setdefault(f"{name} {end - start}", Counts()).add(row.counts)
        window, host = (int(start), int(end - start)), name.partition("/")[2]
        assert (view.hosts[window][host] if host else view.totals[window]) == row.counts
    for host in set(batch.hosts):
        rows = [row for row in range(len(batch)) if batch.host_name(row) == host]
        its = [batch.shapes[batch.shape[row]] for row in rows]
        for size in HOSTS:
            assert stored[f"2/{host} {float(size)}"] == _sum_of(its)
    members = Counter(each.cluster for each in made if each.verdict == "duplicate")
    assert {each.id: each.members for each in view.clusters.values()} == members


def _sum(counts: Iterable[Counts]) -> Counts:
    found = Counts()
    for each in counts:
        found.add(each)
    return found


def _sum_of(shapes: Iterable[Shape]) -> Counts:
    found = Counts()
    for each in shapes:
        found.count(each, 1)
    return found


def test_a_value_that_is_no_verdict_is_named() -> None:
    good = msgspec.json.encode(VerdictMaker().one())
    with pytest.raises(RecordError, match=r"verdicts\[3\] offset 8"):
        batch_of(3, [7, 8, 9], [good, good[:-1], good])
    with pytest.raises(RecordError, match=r"verdicts\[3\] offset 9"):
        batch_of(3, [7, 9], [good, good + b"," + good])


@dataclass
class _Message:
    headers: dict[str, bytes] = field(default_factory=dict)


def test_a_verdict_that_was_fetched_and_not_given_is_a_hole() -> None:
    assert not records_skipped(_Message(), None), "the first after a start"
    assert not records_skipped(_Message({BEFORE: b"7"}), 7)
    assert records_skipped(_Message({BEFORE: b"7"}), 5)
    assert records_skipped(_Message({BEFORE: b"7"}), None), "the first that was fetched was lost"


def test_all_ends_with_the_last_verdict_as_finely_as_windows_tell() -> None:
    """After days without pages, the range ends with the last verdict."""
    seen = View(lambda _window, _host: Counts(), lambda _cluster: [])
    assert seen.last() is None
    early, late = 1_767_355_200, 1_767_358_803
    for moment in (early, late):
        for size in (5, 60, HOUR, DAY):
            seen.count_total((moment // size * size, size), Counts({"unique": 1}))
    assert seen.last() == 1_767_358_805
    found = seen.plan(None, None, None)
    assert found.start <= early
    assert late < found.end <= late + found.step
    # The fine windows are kept for some hours only.
    seen.totals = {window: counts for window, counts in seen.totals.items() if window[1] >= HOUR}
    assert seen.last() == 1_767_358_800 + HOUR


def test_a_host_dropped_from_memory_is_counted_anew_from_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "MOST_HOSTS", 10)
    window, tables = (int(NOW) // HOUR * HOUR, HOUR), {}

    def count(host: str, duplicates: int) -> None:
        news = Counts({"duplicate": duplicates})
        tables.setdefault(host, Counts()).add(news)
        seen.count_host(window, host, news)

    seen = View(host_in_tables=lambda _, host: tables[host])
    for i in range(40):
        count(f"h{i}", i % 7 + 1)
    for i in range(40):
        count(f"h{i}", 1)
    _, found = seen.ranking(window[0] - 9 * DAY, window[0] + HOUR)
    assert seen.pruned
    assert all(counts == tables[host] for host, counts in found.items())
    largest = max(counts.verdicts["duplicate"] for counts in tables.values())
    assert largest == max(counts.verdicts["duplicate"] for counts in found.values())


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://A.example:80/x", "a.example"),
        ("", "(no host)"),
        ("no url", "(no host)"),
        ("http://[::1", "(no host)"),
    ],
)
def test_pages_without_a_proper_url_have_no_host(url: str, host: str) -> None:
    assert host_of(normal(url)) == host


def test_the_contract_is_valid_openapi() -> None:
    contract = msgspec.json.decode(msgspec.json.encode(document()))
    openapi_spec_validator.validate(contract)
    contract["paths"]["/api/v1/figures"]["gett"] = {}
    with pytest.raises(OpenAPIValidationError):
        openapi_spec_validator.validate(contract)


def test_hosts_that_are_no_names_are_none() -> None:
    """They may have 8,000 characters, and 200,000 hosts are in memory."""
    long, short = "http://" + "a." * 200 + "example/", "http://b.example/"
    values = [msgspec.json.encode(each) for each in VerdictMaker().some(6)]
    for place, url in enumerate((long, short, long)):
        values[place] = msgspec.json.encode({**msgspec.json.decode(values[place]), "url": url})
    batch = batch_of(0, range(6), values)
    assert [batch.host_name(row) for row in range(3)] == [NO_HOST, "b.example", NO_HOST]
    assert host_of(long) == NO_HOST


def test_anchors_of_long_urls_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "MOST_ANCHORS", 1_000)
    seen = View(cluster_in_tables=lambda cluster: [ClusterRow(members=int(cluster))])
    for cluster in range(100):
        seen.count_cluster(str(cluster), cluster, "x" * 100)
        assert sum(len(each.anchor) for each in seen.clusters.values()) <= 1_000
    assert max(each.members for each in seen.clusters.values()) == 99
    seen.count_cluster("5", 1, "x" * 100)
    assert "5" not in seen.clusters or seen.clusters["5"].members == 5


def test_a_cluster_is_shown_once_a_page_joined_it_and_its_anchor_when_that_is_named() -> None:
    rows = [ClusterRow(), ClusterRow()]
    seen, loaded = View(), View(cluster_in_tables=lambda _: rows)
    row = _fields("http://a.example/")
    for last, (at, news, shown) in enumerate(
        [
            (0, ClusterNews(0, "http://anchor.example/"), None),
            (1, ClusterNews(2, None, [row, row]), (2, "")),
            (0, ClusterNews(1, None, [row]), (3, "http://anchor.example/")),
        ]
    ):
        assert fold_cluster(rows[at], news, last)
        seen.count_cluster("c", news.members, rows[at].anchor)
        found = seen.clusters.get("c")
        assert (found and (found.members, found.anchor)) == shown
    loaded.count_cluster("c", 2, "", loading=True)
    assert loaded.clusters["c"].anchor == "http://anchor.example/", "of another partition"
    pages = cluster_pages("c", rows)
    assert pages is not None
    assert (pages.anchor, pages.pages, len(pages.members)) == ("http://anchor.example/", 4, 3)
    assert cluster_pages("c", [ClusterRow(anchor="http://anchor.example/")]) is None


def test_clusters_of_long_urls_keep_few_pages() -> None:
    """A row is written again with each fold that has news of it."""
    row = ClusterRow()
    for last in range(5):
        news = ClusterNews(3, None, [_fields("u" * 700) for _ in range(3)])
        assert fold_cluster(row, news, last)
    assert row.members == 15
    assert [len(each.url or "") for each in row.pages] == [700] * (URLS_KEPT // 700)


def _fields(url: str) -> VerdictFields:
    return VerdictFields("1.2.3", url, "duplicate", "1.2.1", None, 0, 1.0, "2026-01-02T03:04:05.000Z", None)


@pytest.mark.parametrize(
    ("partitions", "alone"),
    [(None, False), ("", False), ("c", True), ("cc", True), ("cv", False), ("v", False)],
)
def test_few_batches_are_fetched_unless_they_are_of_changelogs(partitions: str | None, alone: bool) -> None:
    """A batch of verdicts has a megabyte, a record of a changelog is a row."""
    assert of_changelogs_alone(partitions, lambda each: each == "c") is alone

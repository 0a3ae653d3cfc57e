"""The dashboard's arithmetic: windows, rows that count once, sums over partitions."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import msgspec
import openapi_spec_validator
import pytest
from openapi_spec_validator.validation.exceptions import OpenAPIValidationError

from stream.dashboard import view
from stream.dashboard.committed import BEFORE, hole
from stream.dashboard.openapi import document
from stream.dashboard.rows import Counts, WindowRow, decode, fold_window, host_of, normal
from stream.dashboard.view import View
from stream.dashboard.windows import DAY, HOSTS, HOUR, MOST_POINTS, TOTALS, Calendar, plan
from tests.kafka.dashboard_helpers import Verdicts, by_kind

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
        assert not calendar.expired((start, end), NOW)
        assert calendar.expired((start, end), end + TOTALS[int(end - start)])


def test_verdicts_that_come_again_are_counted_once_however_they_are_cut() -> None:
    rng, made = random.Random(5), Verdicts().some(120)
    events = [decode(0, offset, msgspec.json.encode(each)) for offset, each in enumerate(made)]
    row, news, place = WindowRow(), Counts(), 0
    while place < len(events):
        again = rng.randrange(place + 1)
        place = min(len(events), place + rng.randrange(20))
        news.add(fold_window(row, events[again:place]))
    assert {kind: n for kind, n in by_kind(made).items() if n} == row.counts.verdicts == news.verdicts
    assert row.counts == news


@dataclass
class _Message:
    headers: dict[str, bytes] = field(default_factory=dict)


def test_a_verdict_that_was_fetched_and_not_given_is_a_hole() -> None:
    assert not hole(_Message(), None), "the first after a start"
    assert not hole(_Message({BEFORE: b"7"}), 7)
    assert hole(_Message({BEFORE: b"7"}), 5)
    assert hole(_Message({BEFORE: b"7"}), None), "the first that was fetched was lost"


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


def test_the_contract_names_every_schema_that_it_uses() -> None:
    contract = document()
    text = msgspec.json.encode(contract).decode()
    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert names <= set(contract["components"]["schemas"])
    for path, methods in contract["paths"].items():
        for method in methods.values():
            assert method["summary"], path
            assert "200" in method["responses"]

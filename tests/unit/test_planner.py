"""What `neardup plan` computes of tables is the paper's, and of a judge it is near to what
`python -m tests.bench.growth` measured."""

from __future__ import annotations

import json

import pytest

from stream.offline.judge_planner import pages_in_window, plan_judge
from stream.offline.log_planner import plan_logs
from stream.offline.planner import parse_memory, parse_pages, plan
from stream.tables.search.pair_collector import MOST_ANCHORS
from tests.commands import neardup

GIB, MIB = 1 << 30, 1 << 20


def test_designs_for_distance_three_are_the_papers() -> None:
    designs = {design.layout: design for design in plan(1 << 34, 3, 64 * GIB).designs}
    assert [design.tables for design in designs.values()] == [4, 10, 16, 20, 35, 56]
    assert designs["4 choose 1"].candidates == 2**18
    assert designs["4 then 4"].candidates == 2**6
    assert designs["4 then 4"].prefix_bits == (28, 28)
    assert designs["6 choose 3"].prefix_bits == (31, 33)


@pytest.mark.parametrize(
    ("pages", "recommended", "storage", "machines"),
    [
        (1e6, "4 choose 1", "plain", 1),  # few candidates anyhow
        (1e8, "5 choose 2", "plain", 1),
        (1e9, "5 choose 2", "compressed", 1),  # 75 GiB plain
        (8e9, "5 choose 2", "compressed", 6),
    ],
)
def test_recommendation_grows_with_the_corpus(
    pages: float, recommended: str, storage: str, machines: int
) -> None:
    found = plan(int(pages), 3, 64 * GIB)
    assert (found.recommended, found.storage, found.machines) == (recommended, storage, machines)


def test_more_memory_is_never_slower() -> None:
    def seconds(memory: int) -> float:
        found = plan(10**9, 3, memory)
        best = next(design for design in found.designs if design.layout == found.recommended)
        return best.seconds(found.storage)

    times = [seconds(memory * GIB) for memory in (40, 80, 160, 640)]
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1]


@pytest.mark.parametrize(("width", "distance"), [(32, 3), (128, 3), (64, 0), (64, 12), (128, 20), (32, 15)])
def test_other_widths_and_distances_have_plans(width: int, distance: int) -> None:
    found = plan(10**7, distance, 64 * GIB, width)
    assert found.recommended in [design.layout for design in found.designs]
    assert all(design.prefix_bits[1] <= width for design in found.designs)


def test_no_plan_has_more_tables_than_there_may_be() -> None:
    assert [design.tables for design in plan(10**6, 31, GIB).designs] == [32]
    assert plan(10**6, 63, GIB, 128).designs[0].tables == 64


def test_chance_matches_are_told() -> None:
    assert any(reason.startswith("Beware") for reason in plan(10**7, 3, GIB, 32).reasons)
    assert not any(reason.startswith("Beware") for reason in plan(10**7, 3, GIB, 64).reasons)


def test_sizes_and_numbers_of_pages_are_read() -> None:
    sizes = {
        "64GiB": 64 << 30,
        "64 GB": 64 * 10**9,
        "512M": 512 * 10**6,
        "1.5TiB": 3 << 39,
        "2097152": 1 << 21,
    }
    assert {text: parse_memory(text, "memory") for text in sizes} == sizes
    assert [parse_pages(text, "pages") for text in ("8e9", "1,000", "100_000_000")] == [
        8 * 10**9,
        1000,
        10**8,
    ]


def test_the_command_shows_table_reasons_and_json() -> None:
    shown = neardup("plan", "--pages", "8e9", "--strict", env={"COLUMNS": "160"}).stdout
    for text in (
        "5 choose 2",
        "Recommended: 5 choose 2, compressed, which 64 GiB cannot hold",
        "one process on one machine",
        "neardup match",
        "judge",
    ):
        assert text in shown
    found = json.loads(neardup("plan", "--pages", "1e6", "--strict", "--json").stdout)
    assert (found["recommended"], found["machines"]) == ("4 choose 1", 1)


@pytest.mark.parametrize(("anchors", "ram_mib"), [(1_002_449, 735), (2_008_478, 1001)])
def test_memory_is_within_15_percent_of_the_measured(anchors: int, ram_mib: int) -> None:
    assert plan_judge(anchors, GIB).memory / MIB == pytest.approx(ram_mib, rel=0.15)


@pytest.mark.parametrize(("anchors", "groups"), [(10_000_797, 0.1), (20_002_302, 0.257)])
def test_groups_are_near_to_the_measured(anchors: int, groups: float) -> None:
    assert plan_judge(anchors, GIB).groups == pytest.approx(groups, abs=0.15)


def test_more_memory_saves_reads_and_more_anchors_cost_them() -> None:
    by_memory = [plan_judge(10**9, gib * GIB).groups for gib in (1, 4, 16, 64)]
    assert by_memory == sorted(by_memory, reverse=True)
    by_anchors = [plan_judge(anchors, GIB).rows_per_second for anchors in (10**6, 10**7, 10**8, 10**9)]
    assert by_anchors == sorted(by_anchors, reverse=True)


def test_more_pages_than_a_judge_can_number_are_divided() -> None:
    assert plan_judge(MOST_ANCHORS, GIB).judges == 1
    plan = plan_judge(8 * 10**9, 64 * GIB)
    assert (plan.judges, plan.anchors) == (2, 4 * 10**9)


def test_the_command_says_what_a_judge_takes() -> None:
    shown = neardup("plan", "--pages", "1e8", "--tables-memory", "8GiB").stdout
    assert "100,000,000 pages, in the default mode: with 100,000,000 anchors" in shown
    assert "NEARDUP_TABLES_MEMORY=8GiB" in shown
    assert "fast disk" not in shown
    assert [line.partition(":")[0] for line in shown.splitlines()[1:]] == ["RAM", "disk", "speed", "logs"]
    shown = neardup("plan", "--pages", "8e9").stdout
    assert "divide them by host among 2 namespaces, each with 4,000,000,000 anchors" in shown
    assert "groups: set 64GiB for less than 2, or take a fast disk" in shown
    planned = json.loads(neardup("plan", "--pages", "8e9", "--json").stdout)
    assert (planned["judge"]["judges"], planned.keys()) == (2, {"pages", "judge", "logs"})


def test_a_lifetime_says_how_many_pages_are_remembered() -> None:
    shown = neardup("plan", "--lifetime", "90d", "--pages-a-day", "1e6", "--json")
    planned = json.loads(shown.stdout)
    judged = 90 * 10**6
    assert planned["judge"]["anchors"] == pages_in_window(judged)
    assert 0.7 * judged < pages_in_window(judged) < judged
    assert planned["logs"]["trimmed"] == pytest.approx(planned["logs"]["brokers"] * 8 / 90)


def test_trimmed_logs_hold_what_is_kept_and_a_day() -> None:
    week, year = 7 * 86_400.0, 365.0
    plan = plan_logs(10**9, 10**12, year, week)
    assert plan.brokers == pytest.approx(3 * 469 * 10**9)
    assert plan.trimmed == pytest.approx(plan.brokers * 8 / year)
    assert plan.store == 2 * 10**12
    assert plan_logs(10**9, 10**12, 3, week).trimmed == plan.brokers  # all is younger than what is kept

"""What `neardup plan` computes for a judge is near to what `python -m tests.bench.growth` measured."""

from __future__ import annotations

import json

import pytest

from stream.offline.judge_planner import pages_in_window, plan_judge
from stream.offline.log_planner import plan_logs
from stream.tables.search.pair_collector import MOST_ANCHORS
from tests.commands import neardup

GIB, MIB = 1 << 30, 1 << 20


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


def test_plan_says_what_brokers_and_a_store_hold() -> None:
    shown = neardup("plan", "--pages", "1e8", "--days", "100", "--keep", "1d", "--json")
    logs = json.loads(shown.stdout)["logs"]
    assert logs["trimmed"] == pytest.approx(logs["brokers"] / 50)

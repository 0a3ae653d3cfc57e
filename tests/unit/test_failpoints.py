"""Every failpoint has its row in the documentation, which is the list of them, and a test that dies there.
Each family, which is what stands before the dot, has one by day."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CRASH_POINTS = ROOT / "docs" / "architecture" / "crash-points.md"
NAME = re.compile(r"(flush|[a-z]+\.[a-z_]+)")
OTHERS = ("judge.log", "elector.log")
"""Names of other things: files."""
BY_DAY = {
    "checkpoint": (
        "unit/test_stored_checkpoints.py",
        "test_a_killed_upload_leaves_whole_checkpoints_and_the_next_one_goes_on",
    ),
    "dedup": ("unit/test_dedup_runs.py", "test_a_killed_run_writes_the_same_when_it_is_run_again"),
    "drop": ("chaos/test_removal_crash.py", "test_killed_while_pages_and_urls_are_removed"),
    "elector": ("kafka/test_elector.py", "test_killed_at_every_failpoint_the_topic_has_the_kept_pages"),
    "flush": ("chaos/test_tables_crash.py", "test_killed_at_a_failpoint_and_replayed_is_the_same"),
    "erase": ("kafka/test_forget.py", "test_a_killed_judge_goes_on_with_what_was_requested"),
    "forget": ("kafka/test_forget.py", "test_a_killed_judge_goes_on_with_what_was_requested"),
    "freeze": ("chaos/test_tables_crash.py", "test_killed_at_a_failpoint_and_replayed_is_the_same"),
    "genesis": (
        "kafka/test_topics.py",
        "test_creator_killed_before_its_genesis_is_committed_is_followed_by_another",
    ),
    "judge": ("chaos/test_kill.py", "test_kills_at_every_point_lose_nothing_and_repeat_nothing"),
    "load": ("kafka/test_load.py", "test_rule_21_rows_are_judged_once_and_as_by_a_scan_whatever_is_killed"),
    "restore": ("unit/test_stored_checkpoints.py", "test_a_killed_restore_leaves_the_whole_state_or_none"),
    "rows": ("unit/test_rows.py", "test_a_run_killed_anywhere_is_resumed_with_the_same_bytes"),
    "scan": ("unit/test_scan_kills.py", "test_a_scan_killed_at_a_failpoint_gives_every_verdict_once"),
    "sweep": ("chaos/test_removal_crash.py", "test_killed_while_pages_and_urls_are_removed"),
    "topics": (
        "kafka/test_topics.py",
        "test_creator_killed_before_its_genesis_is_committed_is_followed_by_another",
    ),
    "trim": ("kafka/test_trim.py", "test_a_trimmer_that_is_killed_between_the_topics_goes_on"),
    "turn": ("kafka/test_turns.py", "test_a_judge_that_is_killed_at_a_turn_repeats_nothing"),
    "worker": ("kafka/test_worker.py", "test_killed_worker_loses_and_repeats_nothing"),
}  # fmt: skip


@cache
def listed() -> frozenset[str]:
    """The names in the first column of the table."""
    rows = (row.split("|") for row in CRASH_POINTS.read_text().splitlines() if row.startswith("| "))
    return frozenset(name for row in rows for name in re.findall(rf"`{NAME.pattern}`", row[1]))


def strings(path: Path) -> Iterator[str]:
    """The string constants of a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_every_failpoint_of_the_program_is_listed_and_every_listed_one_is_there() -> None:
    families = {name.partition(".")[0] for name in listed() if "." in name}
    named = {
        each
        for path in (ROOT / "stream").rglob("*.py")
        for each in strings(path)
        if (NAME.fullmatch(each) and each.partition(".")[0] in families and each not in OTHERS)
        or each == "flush"
    }
    assert named == listed()


def test_at_every_failpoint_a_test_dies() -> None:
    """Those of `make chaos` deal with all roles at once, and do not count."""
    harness = {Path(__file__), ROOT / "tests" / "chaos" / "failpoints.py"}
    tested = {
        each.partition(":")[0]
        for path in (ROOT / "tests").rglob("*.py")
        if path not in harness
        for each in strings(path)
    }
    assert listed() <= tested


@pytest.mark.parametrize("family", sorted({name.partition(".")[0] for name in listed()}))
def test_each_family_has_a_test_by_day(family: str) -> None:
    file, test = BY_DAY[family]
    path = ROOT / "tests" / file
    assert any(each.partition(":")[0].partition(".")[0] == family for each in strings(path))
    body = {getattr(each, "name", ast.unparse(each)): each for each in ast.parse(path.read_text()).body}
    marks = [ast.unparse(each) for each in getattr(body[test], "decorator_list", ())]
    assert "pytest.mark.night" not in marks
    assert not any(each.startswith("pytestmark") and "mark.night" in each for each in body)

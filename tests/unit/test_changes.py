"""Restarts and rebalances are noted once each, in bounded memory."""

from __future__ import annotations

from stream.dashboard.deployment.changes import KEPT, ChangeLog
from stream.dashboard.deployment.groups import ConsumerGroup, Member

START = 1_800_000_000.0


def group(state: str = "Stable", **partitions: set[int]) -> ConsumerGroup:
    members = (Member(name, "10.0.0.7", frozenset(its)) for name, its in partitions.items())
    return ConsumerGroup(state, tuple(members))


def noted(log: ChangeLog) -> list[tuple[float, str, str, str]]:
    """What was noted after the start of the dashboard, as (seconds after it, role, kind, detail)."""
    return [(each.at - START, each.role, each.kind, each.detail) for each in log.between(START, 2 * START)][
        1:
    ]


def test_a_rebalance_is_noted_once_when_it_is_over() -> None:
    log = ChangeLog(START)
    for seconds, seen in enumerate(
        (
            group(a={0, 1, 2}),
            group(a={0, 1, 2}),
            group("PreparingRebalance", a={0, 1, 2}),
            group("CompletingRebalance", a=set(), b=set()),
            group(a={0, 1}, b={2}),
            group(a={0, 1}, b={2}),
            group(a={0}, b={1, 2}),
            group(b={0, 1, 2}),
            group(c={0, 1, 2}),
            group("Empty"),
        ),
        start=1,
    ):
        log.saw_group("worker", seen, START + seconds)
        log.saw_group("judge", group(x={0}), START + seconds)
    assert noted(log) == [
        (3, "worker", "rebalance", "1 joined; 2 processes in the group"),
        (7, "worker", "rebalance", "partitions moved; 2 processes in the group"),
        (8, "worker", "rebalance", "1 left; 1 process in the group"),
        (9, "worker", "rebalance", "1 joined and 1 left; 1 process in the group"),
        (10, "worker", "rebalance", "1 left; no processes in the group"),
    ]


def test_a_start_is_noted_once_at_its_own_time() -> None:
    log = ChangeLog(START)
    url = "http://127.0.0.1:9502"
    for seconds, started in ((1, START - 50), (2, START - 50), (3, None), (4, START + 3.5), (5, START + 99)):
        log.saw_process("worker", url, started, START + seconds)
    starts = [(each.at - START, each.detail) for each in log.between(0, 2 * START)]
    assert starts == [
        (-50, "127.0.0.1:9502 was started"),
        (0, "this dashboard was started"),
        (3.5, "127.0.0.1:9502 was started"),
        (5, "127.0.0.1:9502 was started"),  # by a clock that is ahead
    ]
    assert log.first == START - 50


def test_the_oldest_changes_are_dropped_and_that_is_known() -> None:
    log = ChangeLog(START)
    for seconds in range(2 * KEPT):
        log.saw_process("worker", "http://w", START + seconds, START + seconds)
    assert len(log.between(0, 2 * START)) == KEPT
    assert log.dropped_until == log.first - 1

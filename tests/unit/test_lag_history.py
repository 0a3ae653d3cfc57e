"""Lag over time is the largest that was measured, in bounded memory however many partitions there are."""

from __future__ import annotations

import random
from types import SimpleNamespace

from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from stream.dashboard.deployment.groups import describe_group
from stream.dashboard.deployment.lag import PartitionLag, TopicLag, furthest_behind
from stream.dashboard.deployment.lag_history import KEPT, MOST_PARTITIONS, LagHistory

START = 1_800_000_000


def lag(*partitions: tuple[int, int, float | None]) -> TopicLag:
    return TopicLag(tuple(sorted((PartitionLag(*each) for each in partitions), key=furthest_behind)))


def test_lag_of_a_topic_is_that_of_its_partitions() -> None:
    assert (lag().records, lag().seconds) == (0, 0.0)
    both = lag((0, 3, 1.5), (4, 2, 9.0))
    assert (both.records, both.seconds) == (5, 9.0)
    assert [each.partition for each in both.partitions] == [4, 0]
    unknown = lag((0, 3, 1.5), (4, 2, None))
    assert (unknown.records, unknown.seconds) == (5, None)
    assert unknown.partitions[0].partition == 4


def test_each_step_has_the_largest_lag_of_a_recount() -> None:
    rng, history, measured = random.Random(1), LagHistory(START), {}
    for now in range(START, START + 600, 2):
        behind = [(each, rng.randrange(1, 99), rng.random() * 60) for each in range(5) if rng.random() < 0.5]
        history.add("judge", now, lag(*behind))
        measured[now] = behind
    wanted = history.plan(START, START + 600, START + 600)
    assert (wanted.step, wanted.points) == (10, 60)
    series = history.of("judge", wanted)
    partitions, behind_at_once = history.partitions("judge", wanted)
    assert behind_at_once == max(map(len, measured.values()))
    for i in range(wanted.points):
        its = [measured[now] for now in range(START + 10 * i, START + 10 * i + 10, 2)]
        assert series.lag_records[i] == max(sum(n for _, n, _ in each) for each in its)
        assert series.lag_seconds[i] == max(max((s for _, _, s in each), default=0.0) for each in its)
        for one in partitions:
            ages = [s for each in its for p, _, s in each if p == one.partition]
            assert one.lag_seconds[i] == max(ages, default=0)


def test_what_was_not_measured_is_unknown_and_what_was_left_out_too() -> None:
    history = LagHistory(START)
    history.add("worker", START, lag(*((each, 10, float(each)) for each in range(20))))
    history.add("worker", START + 20, lag((3, 1, 0.5)))
    wanted = history.plan(START, START + 40, START + 40)
    assert history.of("worker", wanted).lag_records == [200, None, 1, None]
    shown, behind = history.partitions("worker", wanted)
    assert [each.partition for each in shown] == [19, 18, 17, 16, 15, 14, 13, 12]
    assert behind == 20
    assert shown[0].lag_seconds == [19.0, None, 0, None]  # at 20 s all but partition 3 were read to the end
    assert history.partitions("judge", wanted) == ([], 0)


def test_memory_is_bounded_by_retention_and_partitions() -> None:
    history = LagHistory(START)
    hostile = lag(*((each, 1, float(each)) for each in range(100)))
    for now in range(START, START + 40 * 86400, 1800):
        history.add("worker", now, hostile)
    for size, windows in history._windows["worker"].items():
        assert windows[0].start + size + KEPT[size] > now
        assert max(len(each.partitions) for each in windows) == MOST_PARTITIONS
    assert len(history._windows["worker"]) == len(KEPT)


class Admin:
    def __init__(self, *members: tuple[str, str, bytes]) -> None:
        self.members = [(name, "neardup", host, b"", given) for name, host, given in members]

    async def describe_consumer_groups(self, groups: list[str]) -> list[object]:
        return [SimpleNamespace(groups=[(0, "g", "Stable", "consumer", "range", self.members, 0)])]


async def test_a_group_says_who_reads_a_partition() -> None:
    def assigned(*topics: tuple[str, list[int]]) -> bytes:
        return bytes(ConsumerProtocolMemberAssignment(0, list(topics), b"").encode())

    admin = Admin(
        ("m-1", "/10.0.0.7", assigned(("pages", [0, 2]), ("other", [1]))),
        ("m-2", "/10.0.0.8", b""),
        ("m" * 5000, "/10.0.0.9", assigned()),
    )
    group = await describe_group(admin, "g", "pages")  # type: ignore[arg-type]
    assert [group.reader(each) for each in range(3)] == ["10.0.0.7", None, "10.0.0.7"]
    assert [len(each.id) for each in group.members] == [3, 3, 200]

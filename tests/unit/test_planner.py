"""The planner's arithmetic is the paper's, and its advice is sensible from a million pages to 8 billion."""

from __future__ import annotations

import json

import pytest

from stream.offline.planner import parse_memory, parse_pages, plan
from tests.commands import neardup

GIB = 1 << 30


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

"""What benchmarks make of figures: the page of results, what fell, and what was rightly dropped."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from tests.bench import bench_dedup, dedup_pages, report
from tests.bench.goals import judged
from tests.bench.quality.truth import Truth

DOCUMENTED = Path("docs/benchmarks.json").resolve()


def test_the_page_is_what_its_figures_give(tmp_path: Path) -> None:
    """With goals that were missed and why, costs, and measurements of which nobody knows how busy the machine
    was."""
    page = report.page(tmp_path / DOCUMENTED.name, json.loads(DOCUMENTED.read_text("utf-8")))
    assert page == DOCUMENTED.with_suffix(".md").read_text("utf-8")
    for each in ("| **not met**: ", "| met |", "## Cost", "How busy the machine was is not known."):
        assert each in page
    assert not re.search(r"\*\*not met\*\*:.*\{", page), "reasons have their figures"


def test_figures_of_a_busy_machine_are_marked(tmp_path: Path) -> None:
    for others, marks in ((0.75, 1), (0.04, 0)):
        report.keep(tmp_path / "kept.json", "judge", {"verdicts_per_second": 7}, others)
        page = (tmp_path / "kept.md").read_text("utf-8")
        assert page.count("on a busy machine |") == marks
        assert page.count("**On a busy machine**: others took 75% of it.") == marks


@pytest.mark.parametrize(("wrong", "faust", "met"), [(4, 5, [True]), (6, 5, [False]), (0, None, [])])
def test_a_goal_may_be_another_figure(wrong: int, faust: int | None, met: list[bool]) -> None:
    html = {"wrong_verdicts": wrong} | ({} if faust is None else {"faust_wrong_verdicts": faust})
    assert [each.met for each in judged("end_to_end", {"html": html})] == met


@pytest.mark.parametrize(("last", "says"), [(0.69, []), (0.5, ["judge: text: ratio was 0.7, is 0.5"])])
def test_compare_names_what_fell(tmp_path: Path, last: float, says: list[str]) -> None:
    kept = tmp_path / "kept.json"
    report.keep(kept, "judge", {"text": {"ratio": 0.7, "seconds": 1}})
    assert report.fallen(kept, "judge", {"text": {"ratio": last, "seconds": 9}}) == says
    assert report.fallen(kept, "growth", {"ratio": 0.0}) == []


@pytest.mark.night
def test_listed_pairs_are_all_that_are_alike(tmp_path: Path) -> None:
    files, pairs = dedup_pages.make(tmp_path, 400)
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert [int(line["id"]) for line in lines] == list(range(400))
    truth = Truth([line["text"] for line in lines])
    counted = {pair: truth.similarity(*pair) for pair in combinations(range(400), 2)}
    expected = {pair: similarity for pair, similarity in counted.items() if similarity >= dedup_pages.LEAST}
    listed = {
        (one, two): similarity for one, two, similarity in zip(*map(np.ndarray.tolist, pairs), strict=True)
    }
    assert listed == pytest.approx(expected)
    assert any(0.8 <= similarity < 1 for similarity in listed.values())


# Pages 0 to 3 are a chain: each is like its neighbours alone. 4 and 5 are .75 alike; 6 is like none.
CHAIN = (np.array([0, 1, 2, 4]), np.array([1, 2, 3, 5]), np.array([0.9, 0.9, 0.9, 0.75]))


@pytest.mark.night
@pytest.mark.parametrize(
    ("kept", "right", "missed"),
    [
        ([0, 2, 4, 5, 6], 2, 0),  # as stars do
        ([0, 4, 5, 6], 1, 0),  # as chains do: 2 and 3 are like no page that is kept
        ([3, 4, 5, 6], 1, 0),  # another end of the chain is no worse
        ([0, 1, 2, 3, 4, 5, 6], 0, 3),
        ([0, 1, 3, 4, 6], 1, 1),  # 2 is like both of its neighbours, 5 like none at .8
    ],
)
def test_a_page_is_rightly_dropped_for_a_kept_one_that_is_like_it(
    kept: list[int], right: int, missed: int
) -> None:
    chosen = np.zeros(7, bool)
    chosen[kept] = True
    figures = bench_dedup.quality(CHAIN, chosen)
    dropped = 7 - len(kept)
    assert (figures["kept"], figures["dropped"]) == (len(kept), dropped)
    assert figures["precision_0.8"] == pytest.approx(right / max(1, dropped), abs=1e-5)
    assert figures["recall"] == pytest.approx(right / max(1, right + missed), abs=1e-5)

"""The page of benchmark results, and what fell since one was kept."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.bench import report
from tests.bench.busyness import share_used
from tests.bench.goals import judged

DOCUMENTED = Path("docs/benchmarks.json").resolve()


def test_the_page_is_what_its_figures_give(tmp_path: Path) -> None:
    """With goals that were missed and why, costs, and measurements of which nobody knows how busy the machine
    was."""
    page = report._page(tmp_path / DOCUMENTED.name, json.loads(DOCUMENTED.read_text("utf-8")))
    assert page == DOCUMENTED.with_suffix(".md").read_text("utf-8")
    for each in ("| **not met**: ", "| met |", "## Cost", "How busy the machine was is not known."):
        assert each in page
    assert not re.search(r"\*\*not met\*\*:.*\{", page), "reasons have their figures"


@pytest.mark.parametrize(
    ("after", "share"), [([10, 0, 10, 180, 0, 0, 0, 0], 0.1), ([150, 0, 0, 40, 10, 0, 0, 0], 0.75)]
)
def test_figures_of_a_busy_machine_are_marked(after: list[int], share: float, tmp_path: Path) -> None:
    assert share_used([0] * 8, after) == pytest.approx(share)
    for others, marks in ((share, 1), (0.04, 0)):
        report.keep(tmp_path / "kept.json", "judge", {"verdicts_per_second": 7}, others)
        page = (tmp_path / "kept.md").read_text("utf-8")
        assert page.count("on a busy machine |") == marks
        assert page.count(f"**On a busy machine**: others took {share:.0%} of it.") == marks


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

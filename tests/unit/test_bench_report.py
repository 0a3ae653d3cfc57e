"""The page of benchmark results, and what fell since one was kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench import report
from tests.bench.busyness import share_used
from tests.bench.goals import judged


def growth(last: float) -> dict[str, Any]:
    """A curve whose speed falls to a share of the first."""
    speeds = {1_000_000: 40_000, 2_000_000: round(40_000 * last)}
    curve = {
        f"{anchors:,}": {
            "anchors": anchors,
            "rows_per_second": speed,
            "ram_mib": anchors >> 12,
            "disk_bytes_an_anchor": 500,
        }
        for anchors, speed in speeds.items()
    }
    return {"curve": curve, "last_to_million_ratio": last, "rebuild": {"rebuilt_per_second": 9, "ratio": 6.0}}


def test_a_page_names_goals_that_were_missed_and_why(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    report.keep(kept, "latency", {"at_50%": {"p50_ms": 60, "p99_ms": 100}})
    slow = {"verdicts_per_second": 7, "ratio": 0.5, "publishing_alone_per_second": 14, "cores": 1.9}
    slow["processor_us_a_verdict"] = {"judge": 20.0, "broker": 8.0}
    report.keep(kept, "judge", slow)
    page = kept.with_suffix(".md").read_text("utf-8")
    assert "| latency | p50 from publish to verdict at half load, ms | <= 50 | 60 | **not met** |" in page
    assert "| judge | verdicts a second | >= 100,000 | 7 | **not met**: a verdict takes 20.0 us" in page
    assert "| judge | of publishing alone | >= 0.4 | 0.5 | met |" in page
    assert "2 of 4 goals are met." in page


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


def test_the_page_says_of_which_figures_nobody_knows_how_busy_the_machine_was(tmp_path: Path) -> None:
    kept, before = tmp_path / "kept.json", {"date": "2026-01-02", "machine": "a machine"}
    kept.write_text(json.dumps({"judge": {**before, "found": {"verdicts_per_second": 7}}}))
    report.keep(kept, "latency", {"at_50%": {"p50_ms": 60, "p99_ms": 100}})
    page = kept.with_suffix(".md").read_text("utf-8")
    assert "How busy other programs kept the machine is not known for: judge.\n" in page


@pytest.mark.parametrize(("wrong", "faust", "met"), [(4, 5, [True]), (6, 5, [False]), (0, None, [])])
def test_a_goal_may_be_another_figure(wrong: int, faust: int | None, met: list[bool]) -> None:
    html = {"wrong_verdicts": wrong} | ({} if faust is None else {"faust_wrong_verdicts": faust})
    assert [each.met for each in judged("end_to_end", {"html": html})] == met


def test_costs_follow_from_processor_times(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    text = {
        "own_processes_us_a_page": 110.0,
        "decide_us_a_page": 34.0,
        "fingerprint_and_decide_us_a_page": 120.0,
    }
    report.keep(kept, "backfill", {"text": text})
    spent = {"bench": 100, "broker": 160, "children": 120, "judge": 110, "worker": 90}
    report.keep(kept, "end_to_end", {"text": {"processor_us_a_page": spent}})
    page = kept.with_suffix(".md").read_text("utf-8")
    assert "| text | batch, fingerprint and decide alone | 120 | 33 | 2 |" in page
    assert "| text | batch, our processes | 144 | 40 | 2 |" in page
    assert "| text | stream | 480 | 133 | 7 |" in page


@pytest.mark.parametrize(
    ("last", "says"), [(0.69, []), (0.5, ["growth: last_to_million_ratio was 0.7, is 0.5"])]
)
def test_compare_names_what_fell(tmp_path: Path, last: float, says: list[str]) -> None:
    kept = tmp_path / "kept.json"
    report.keep(kept, "growth", growth(0.7))
    assert report.fallen(kept, "growth", growth(last)) == says
    assert report.fallen(kept, "judge", {"ratio": 0.0}) == []


def test_reasons_have_their_figures() -> None:
    kept = json.loads(Path("docs/benchmarks.json").read_text("utf-8"))
    for part, each in kept.items():
        for goal in judged(part, each["found"]):
            assert "{" not in goal.why + goal.what

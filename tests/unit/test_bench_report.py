"""What benchmarks make of figures: the page of results, what fell, what was rightly dropped, and growth that
goes on where it was ended."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np
import pytest

from stream.errors import SettingsError
from tests.bench import bench_dedup, dedup_pages, growth, report
from tests.bench.busyness import share_used
from tests.bench.goals import judged
from tests.bench.growth import Growth, Setup, Slice, summary
from tests.bench.journal import ROWS
from tests.bench.quality.truth import Truth

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
    ("kept", "right", "missed", "left_alike"),
    [
        ([0, 2, 4, 5, 6], 2, 0, 0),  # as stars do
        ([0, 4, 5, 6], 1, 0, 0),  # as chains do: 2 and 3 are like no page that is kept
        ([3, 4, 5, 6], 1, 0, 0),  # another end of the chain is no worse
        ([0, 1, 2, 3, 4, 5, 6], 0, 3, 3),
        ([0, 1, 3, 4, 6], 1, 1, 1),  # 2 is like both of its neighbours, 5 like none at .8
    ],
)  # fmt: skip
def test_a_page_is_rightly_dropped_for_a_kept_one_that_is_like_it(
    kept: list[int], right: int, missed: int, left_alike: int
) -> None:
    chosen = np.zeros(7, bool)
    chosen[kept] = True
    figures = bench_dedup.quality(CHAIN, chosen)
    dropped = 7 - len(kept)
    assert (figures["kept"], figures["dropped"]) == (len(kept), dropped)
    assert figures["precision_0.8"] == pytest.approx(right / max(1, dropped), abs=1e-5)
    assert figures["recall"] == pytest.approx(right / max(1, right + missed), abs=1e-5)
    assert figures["pairs_left_alike"] == left_alike
    assert figures["dropped_unlike_any_kept"] == dropped - right


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "TRANSACTION", 4 * ROWS)
    monkeypatch.setattr(growth, "COPIES", 2 * ROWS)


@pytest.mark.night
@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("strict", [False, True])
def test_a_killed_run_goes_on_and_ends_with_the_same_state(tmp_path: Path, strict: bool) -> None:
    setup = Setup(strict, 1 << 20, 4000, 64, 3000)
    whole = Growth(tmp_path / "whole", setup)
    for _ in whole.grow(20_000):
        pass
    parts = Growth(tmp_path / "parts", setup)
    for measured in parts.grow(20_000):
        if measured.anchors > 8000:
            break  # the batches after the last flush are lost as well
    lost = Slice(parts.next + 100, anchors=12_000)
    parts.slices.append(lost)
    lines = [msgspec.json.encode(each) for each in parts.slices]
    parts._path.write_bytes(b"\n".join([*lines, b'{"en']))  # and half a line
    parts.close()
    parts = Growth(tmp_path / "parts", setup)
    assert [each.anchors for each in parts.slices][-1] < 12_000
    for _ in parts.grow(20_000):
        pass
    parts.start_again()
    assert parts.state.digest() == whole.state.digest()
    figures = summary(parts)
    assert figures["anchors"] == parts.state.tables.count >= 20_000
    assert [each.anchors for each in parts.slices] == sorted({each.anchors for each in parts.slices})
    (recall,) = figures["recall"].values()
    assert recall == 1.0 if strict else recall >= 0.99
    for each in (whole, parts):
        each.close()
    with pytest.raises(SettingsError, match="was begun with"):
        Growth(tmp_path / "parts", Setup(strict, 2 << 20, 4000, 64, 3000))

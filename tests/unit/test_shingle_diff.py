"""What two texts share, and do not share, as text."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.judge.explain.shingle_diff import LONGEST_OWN, MOST_RUNS, Shingled, ShingleDiff, diff
from stream.text.normalise import normalise
from stream.text.segment import units
from tests.commands import neardup


def diff_of(a: str, b: str, shingle: int = 3) -> ShingleDiff:
    return diff(*(Shingled.of(text, units(text), shingle) for text in map(normalise, (a, b))))


def shown(found: ShingleDiff) -> list[str]:
    return [
        "".join(run.text if run.shared else f"<{run.text}>" for run in runs)
        for runs in (found.anchor, found.page)
    ]


@pytest.mark.parametrize(
    ("a", "b", "expected", "counts"),
    [
        ("one two three four", "one two three four", ["one two three four"] * 2, (2, 0, 0)),
        ("one two three", "four five six", ["<one two three>", "<four five six>"], (0, 1, 1)),
        ("A b, c. D e f", "a b c x d e f", ["a b, c. d e f", "a b c<x>d e f"], (2, 2, 3)),
        (
            "修复北码头的旧灯塔",
            "修复北码头的新灯塔",
            ["修复北码头的<旧灯塔>", "修复北码头的<新灯塔>"],
            (4, 3, 3),
        ),
        ("a b", "a b", ["a b"] * 2, (1, 0, 0)),
        ("", "a b", ["", "<a b>"], (0, 0, 1)),
        ("a\x1b\u202e b\n\nc", "a\x1b b c", ["a\ufffd b c"] * 2, (1, 0, 0)),
    ],
)
def test_runs_are_what_shared_shingles_cover(
    a: str, b: str, expected: list[str], counts: tuple[int, ...]
) -> None:
    found = diff_of(a, b)
    assert (shown(found), found.counts) == (expected, counts)


@given(st.text(), st.text(), st.integers(1, 6))
def test_runs_cover_every_unit_once_and_agree_with_the_sets_of_shingles(a: str, b: str, shingle: int) -> None:
    found = diff_of(a, b, shingle)
    for text, runs in ((a, found.anchor), (b, found.page)):
        of = units(normalise(text))
        assert sum(run.units for run in runs) == len(of) or len(runs) == MOST_RUNS
        assert all(one.shared != other.shared for one, other in itertools.pairwise(runs))
    assert found.counts[0] or not any(run.shared for run in found.anchor + found.page)
    assert diff_of(a, a, shingle).counts[1:] == (0, 0)


def test_the_diff_of_long_and_hostile_texts_is_bounded() -> None:
    long = diff_of("a" * 1_000_000, " ".join(f"w{i} x" for i in range(50_000)))
    assert max(len(run.text) for run in long.anchor + long.page) <= LONGEST_OWN + 3
    many = diff_of("".join(f"a b c n{i} " for i in range(1000)), "a b c")
    assert (len(many.anchor), many.left_out) == (MOST_RUNS, (2000 - MOST_RUNS, 0))


def test_explain_shows_the_diff_with_marks_that_no_text_can_imitate(tmp_path: Path) -> None:
    shared = "the harbour authority will repair [red] the pier {+x+} before winter"
    (tmp_path / "a.txt").write_text(f"old words here {shared}")
    (tmp_path / "b.txt").write_text(f"{shared} \x1b[31m and more words here")
    plain = " ".join(neardup("explain", tmp_path / "a.txt", tmp_path / "b.txt", "--diff").stdout.split())
    said = shared.replace("{+", "\\{+").replace("+}", "\\+}")
    assert f"A: [-old words here-] {said} B:" in plain
    assert f"B: {said} \ufffd[ {{+31m and more words here+}}" in plain
    assert "\x1b" not in plain
    found = json.loads(neardup("explain", tmp_path / "a.txt", tmp_path / "b.txt", "--json").stdout)
    assert found["shingles"]["anchor"][0] == {"shared": False, "text": "old words here", "units": 3}

"""What `tests.bench.bench_dedup` counts: the pages it makes, what is right and wrong, time and memory."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from tests.bench import bench_dedup, dedup_pages
from tests.bench.quality.truth import Truth

pytestmark = pytest.mark.night


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

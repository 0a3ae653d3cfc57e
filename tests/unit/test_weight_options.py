"""Weights are integers, the same on every machine."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.errors import SettingsError
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.weight_options import cap_weights, inverse_frequencies, log_weight, weigher

COUNTS = {b"one": 1, b"two": 2, b"nine": 9}


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ("tf", [4096, 8192, 36864]),
        ("sqrt", [4096, round(4096 * 2**0.5), 8192]),
        ("log", [4096, math.floor(4096 * math.log2(3)), math.floor(4096 * math.log2(10))]),
    ],
)
def test_weights_by_count(weights: str, expected: list[int]) -> None:
    assert weigher(Scheme(weights=weights))(COUNTS).tolist() == expected  # type: ignore[arg-type]


@given(st.integers(1, 10**6))
def test_the_logarithm_is_the_floor_of_the_real_one(count: int) -> None:
    real = 4096 * math.log2(1 + count)
    assert log_weight(count) in {math.floor(real - 1e-6), math.floor(real + 1e-6)}


def test_tfidf_is_tf_times_the_files_idf_and_its_median_for_the_rest(tmp_path: Path) -> None:
    idf = tmp_path / "idf.txt"
    idf.write_text("One 0.5\ntwo 2\nthree 7\n")
    scheme = Scheme(weights="tfidf", idf=str(idf))
    assert weigher(scheme)(COUNTS).tolist() == [2048, 2 * 8192, 9 * 8192]


def test_jiebas_own_idf_is_the_default() -> None:
    idf, median = inverse_frequencies("")
    assert len(idf) > 200_000
    assert idf["的".encode()] < median if "的".encode() in idf else median > 0
    assert weigher(Scheme(weights="tfidf"))({"劳动防护".encode(): 1}).tolist() == [round(4096 * 13.900677652)]


@pytest.mark.parametrize("line", ["one", "one x", "one -1", "one inf", " 3", ""])
def test_a_malformed_idf_file_is_named(line: str, tmp_path: Path) -> None:
    idf = tmp_path / "idf.txt"
    idf.write_text(line)
    with pytest.raises(SettingsError, match=r"idf=.*idf\.txt"):
        weigher(Scheme(weights="tfidf", idf=str(idf)))


@given(st.lists(st.integers(1, 2**40), min_size=1, max_size=40), st.integers(1, 99))
def test_no_feature_has_more_than_its_share(weights: list[int], percent: int) -> None:
    before = np.array(weights, np.int64)
    after = cap_weights(before, percent)
    assert (after <= before).all()
    if len(weights) * percent < 100:
        assert set(after.tolist()) == {min(weights)}, "too few features for that share: all count the same"
    else:
        assert after.max() * 100 <= percent * after.sum() + 100 * len(weights)  # rounding
        cut = after < before
        assert len(set(after[cut].tolist())) <= 1, "what is cut is cut to one height"


def test_a_cap_beyond_every_share_changes_nothing() -> None:
    weights = np.array([4096, 8192, 4096], np.int64)
    assert cap_weights(weights, 50).tolist() == weights.tolist()
    assert cap_weights(weights, 40).tolist() == [4096, 5461, 4096]  # 5461 is 40 % of 13653
    assert cap_weights(np.empty(0, np.int64), 5).size == 0

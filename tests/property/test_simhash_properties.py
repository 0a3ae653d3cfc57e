"""Properties of the SimHash of every set of features."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stream.fingerprint.default_weights import features
from stream.fingerprint.simhash import bit_sums, simhash

FEATURES = st.lists(
    st.tuples(st.integers(0, 2**64 - 1), st.integers(1, 2**40)),
    max_size=60,
    unique_by=lambda feature: feature[0],
)


def columns(rows: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([h for h, _ in rows], np.uint64), np.array([w for _, w in rows], np.int64)


@given(FEATURES, st.randoms(use_true_random=False))
def test_order_of_features_changes_no_bit(rows: list[tuple[int, int]], random: object) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert simhash(*columns(rows)) == simhash(*columns(shuffled))


@given(FEATURES)
def test_sums_are_the_definition(rows: list[tuple[int, int]]) -> None:
    expected = [sum(w if h >> bit & 1 else -w for h, w in rows) for bit in range(64)]
    assert bit_sums(*columns(rows)).tolist() == expected


@given(st.lists(st.integers(0, 2**64 - 1), max_size=60), st.randoms(use_true_random=False))
def test_order_of_tokens_changes_no_feature(hashes: list[int], random: object) -> None:
    shuffled = list(hashes)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for one, two in zip(*(features(np.array(x, np.uint64)) for x in (hashes, shuffled)), strict=True):
        assert one.tolist() == two.tolist()

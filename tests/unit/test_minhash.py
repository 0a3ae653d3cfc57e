"""Both kinds of MinHash estimate the Jaccard similarity of shingle sets."""

from __future__ import annotations

import numpy as np
import pytest

from stream.fingerprint.sketch import shingles
from tests.seeds.minhash import (
    first_in,
    k_functions,
    k_smallest,
    similarity_by_functions,
    similarity_by_smallest,
)


def pair(share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two sets of 1000 with J = share."""
    rng = np.random.default_rng(seed)
    common = round(2000 * share / (1 + share))
    drawn = rng.choice(2**32, 2000 - common, replace=False).astype(np.uint32)
    return drawn[:1000], np.concatenate([drawn[:common], drawn[1000:]])


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.8, 0.95, 1.0])
def test_both_estimators_are_unbiased(share: float) -> None:
    k, runs = 256, 12
    true, by_functions, by_smallest = [], [], []
    for seed in range(runs):
        a, b = pair(share, seed)
        true.append(len(set(a) & set(b)) / len(set(a) | set(b)))
        by_functions.append(similarity_by_functions(k_functions(a, k), k_functions(b, k)))
        by_smallest.append(similarity_by_smallest(k_smallest(a, k), k_smallest(b, k), k))
    deviation = (0.25 / k / runs) ** 0.5
    assert np.mean(by_functions) == pytest.approx(np.mean(true), abs=5 * deviation)
    assert np.mean(by_smallest) == pytest.approx(np.mean(true), abs=5 * deviation)


def test_the_overlap_of_two_lists_of_minima_is_not_the_similarity() -> None:
    """Seed 000 divides the common minima by all different ones; with J = 0.5 that comes to a third."""
    a, b = (k_functions(each, 2048) for each in pair(0.5, 7))
    overlap = len(np.intersect1d(a, b)) / len(np.union1d(a, b))
    assert overlap == pytest.approx(0.5 / 1.5, abs=0.05)
    assert similarity_by_functions(a, b) == pytest.approx(0.5, abs=0.06)


def test_repetitions_and_order_of_shingles_change_nothing() -> None:
    one = shingles(np.arange(50, dtype=np.uint32), 5)
    again = np.concatenate([one[::-1], one])
    assert k_functions(one, 70).tolist() == k_functions(again, 70).tolist()
    assert k_smallest(one, 20).tolist() == k_smallest(again, 20).tolist()
    assert k_smallest(one, 20).tolist() == sorted(set(k_smallest(one, 1000).tolist()))[:20]


def test_functions_differ() -> None:
    least = k_functions(np.arange(1000, dtype=np.uint32), 300)
    assert len(set(least.tolist())) > 290


def test_small_and_empty_sets() -> None:
    few = np.array([1, 2, 3], np.uint32)
    none = np.empty(0, np.uint32)
    assert similarity_by_smallest(k_smallest(few, 64), k_smallest(few[:2], 64), 64) == pytest.approx(2 / 3)
    assert similarity_by_smallest(k_smallest(none, 64), k_smallest(none, 64), 64) == 1
    assert similarity_by_smallest(k_smallest(none, 64), k_smallest(few, 64), 64) == 0
    with pytest.raises(ValueError, match="order"):
        first_in("abc", {"x"})

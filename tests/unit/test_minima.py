"""Five minima find similar pages of any length, and hardly any others."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from stream.fingerprint.minima import minima
from stream.fingerprint.scheme import MINIMA
from stream.tables.design import Design


def same(a: int, b: int) -> int:
    """Number of equal minima in two keys."""
    return sum(not (a ^ b) & mask for mask in Design(MINIMA, 1).prefix_mask.tolist())


def chance_of_two(j: float) -> float:
    return 1 - (1 - j) ** MINIMA - MINIMA * j * (1 - j) ** (MINIMA - 1)


def test_each_is_the_least_hash_in_its_fifth_or_the_next_one() -> None:
    rng = np.random.default_rng(1)
    for n in (1, 2, 3, 7, 40, 1000):
        hashes = np.unique(rng.integers(0, 2**32, n, np.uint32))
        word = 0
        for minimum, bits in enumerate((13, 13, 13, 13, 12)):
            edge = minimum * 2**32 // MINIMA
            least = min(hashes.tolist(), key=lambda each: (each - edge) % 2**32)
            word = word << bits | least & (1 << bits) - 1
        assert minima(hashes) == word


@pytest.mark.parametrize("n", [10, 20, 100, 3000])
@pytest.mark.parametrize("j", [0.8, 0.9])
def test_pages_that_are_alike_share_two_of_them(n: int, j: float) -> None:
    rng = np.random.default_rng(n)
    differing = round(n * (1 - j))  # of all n, half in each set
    met = 0
    for _ in range(1500):
        hashes = rng.permutation(rng.integers(0, 2**32, n, np.uint32))
        sets = hashes[: n - differing // 2], hashes[differing - differing // 2 :]
        met += same(*(minima(np.sort(each)) for each in sets)) >= 2
    assert met / 1500 > chance_of_two(j) - 0.01


def test_pages_that_are_not_share_none_but_by_chance() -> None:
    rng = np.random.default_rng(3)
    words = np.array(
        [minima(np.sort(rng.integers(0, 2**32, 50, np.uint32))) for _ in range(3000)], dtype=np.uint64
    )
    shared = [same(int(a), int(b)) for a, b in zip(words[::2], words[1::2], strict=True)]
    assert sum(shared) < 10
    keys = Design(MINIMA, 2).keys(words)
    buckets = len(np.unique(keys))
    assert keys.size - buckets < 3 * comb(MINIMA, 2) * comb(3000, 2) / 2**25 + 10

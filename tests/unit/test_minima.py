"""Five of the minima find similar pages of any length, and hardly any others."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from stream.fingerprint.minima import equal_minima, minima
from stream.fingerprint.scheme import MINIMA, MINIMUM_BITS, TABLE_MINIMA
from stream.judge.rule import Rule
from stream.messages.verdict_options import VerdictOptions
from tests.judged_crawls import SCHEME, packed_minima


def same(a: np.ndarray, b: np.ndarray) -> int:
    """Number of equal minima, of those that tables index."""
    return sum(equal_minima(a, b)[:TABLE_MINIMA])


def chance_of_two(j: float) -> float:
    return 1 - (1 - j) ** TABLE_MINIMA - TABLE_MINIMA * j * (1 - j) ** (TABLE_MINIMA - 1)


def test_each_is_the_least_hash_in_its_tenth_or_the_next_one() -> None:
    rng = np.random.default_rng(1)
    for n in (1, 2, 3, 7, 40, 1000):
        hashes = np.unique(rng.integers(0, 2**32, n, np.uint32))
        least = [
            min(hashes.tolist(), key=lambda each: (each - edge) % 2**32) % (1 << MINIMUM_BITS)
            for edge in (tenth * 2**32 // 10 for tenth in (0, 2, 4, 6, 8, 1, 3, 5, 7, 9))
        ]
        assert int.from_bytes(minima(hashes).tobytes(), "little") == packed_minima(least)


def test_each_is_compared_by_itself() -> None:
    zeros = np.zeros(3, np.uint64)
    for minimum in range(MINIMA):
        for bit in range(MINIMUM_BITS):
            apart = packed_minima([0] * minimum + [1 << bit])
            other = np.frombuffer(apart.to_bytes(24, "little"), np.uint64)
            assert equal_minima(zeros, other) == [each != minimum for each in range(MINIMA)]


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
    words = np.array([minima(np.sort(rng.integers(0, 2**32, 50, np.uint32))) for _ in range(3000)])
    shared = [same(a, b) for a, b in zip(words[::2], words[1::2], strict=True)]
    assert sum(shared) < 3
    keys = Rule(VerdictOptions(), SCHEME).design().keys(words)
    assert keys.shape == (3000, comb(TABLE_MINIMA, 2))
    assert keys.size - len(np.unique(keys)) < 3

"""Nine of the minima find similar pages of any length, and hardly any others."""

from __future__ import annotations

import numpy as np
import pytest

from stream.fingerprint.minima import MINIMA, MINIMA_WORDS, equal_minima, minima
from stream.judge.rule import Rule
from stream.messages.verdict_options import VerdictOptions
from tests.judged_crawls import SCHEME, packed_minima


def same(a: np.ndarray, b: np.ndarray) -> int:
    """Number of the first nine pairs of minima that are equal."""
    nine = equal_minima(a, b)[:9]
    return sum(nine[at] and nine[at // 3 * 3 + (at + 1) % 3] for at in range(9))


def chance_of_a_pair(j: float) -> float:
    return 1 - (1 - 3 * j**2 + 2 * j**3) ** 3


def test_each_is_the_least_hash_in_its_thirtieth_or_the_next_one() -> None:
    rng = np.random.default_rng(1)
    triangles = [(first, first + 10, first + 20) for first in (0, 3, 6, 9, 2, 5, 8, 1, 4, 7)]
    for n in (1, 2, 3, 7, 40, 1000):
        hashes = np.unique(rng.integers(0, 2**32, n, np.uint32))
        least = [
            min(hashes.tolist(), key=lambda each: (each - edge) % 2**32)
            for edge in (thirtieth * 2**32 // 30 for triangle in triangles for thirtieth in triangle)
        ]
        assert int.from_bytes(minima(hashes).tobytes(), "little") == packed_minima(least)


def test_each_is_compared_by_itself() -> None:
    zeros = np.zeros(MINIMA_WORDS, np.uint64)
    for minimum in range(MINIMA):
        for bit in range(19 if minimum < 9 else 16):
            apart = packed_minima([0] * minimum + [1 << bit])
            other = np.frombuffer(apart.to_bytes(64, "little"), np.uint64)
            assert equal_minima(zeros, other) == [each != minimum for each in range(MINIMA)]


@pytest.mark.parametrize("n", [10, 20, 100, 3000])
@pytest.mark.parametrize("j", [0.8, 0.9])
def test_pages_that_are_alike_share_a_pair_of_them(n: int, j: float) -> None:
    rng = np.random.default_rng(n)
    differing = round(n * (1 - j))  # of all n, half in each set
    met = 0
    for _ in range(1500):
        hashes = rng.permutation(rng.integers(0, 2**32, n, np.uint32))
        sets = hashes[: n - differing // 2], hashes[differing - differing // 2 :]
        met += same(*(minima(np.sort(each)) for each in sets)) >= 1
    assert met / 1500 > chance_of_a_pair(j) - 0.01


def test_pages_that_are_not_share_none_but_by_chance() -> None:
    rng = np.random.default_rng(3)
    words = np.array([minima(np.sort(rng.integers(0, 2**32, 50, np.uint32))) for _ in range(3000)])
    shared = [same(a, b) for a, b in zip(words[::2], words[1::2], strict=True)]
    assert sum(shared) == 0
    keys = Rule(VerdictOptions(), SCHEME).design().keys(words)
    assert keys.shape == (3000, 9)
    assert keys.size - len(np.unique(keys)) < 3

"""Nine of the minima find similar pages of any length, hardly any others, and rank them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from stream.fingerprint.minima import MINIMA, MINIMA_WORDS, equal_minima, minima
from stream.judge.rule import Rule
from stream.messages.verdict_options import VerdictOptions
from stream.tables.arrays import U64
from stream.tables.search.rank import abridged_minima, least_rank, ranks_of
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


def lowest_bits(words: U64) -> NDArray[np.int64]:
    """Seven of each minimum (9,)."""
    return np.array([int(word) >> 19 * place & 127 for word in words for place in range(3)])


@pytest.mark.parametrize("flips", [0, 1, 2, 5, 60])  # 1: each bit
def test_each_minimum_that_differs_counts_as_two_bits_of_distance(flips: int) -> None:
    rng = np.random.default_rng(flips)
    own = rng.integers(0, 1 << 64, 3, dtype=np.uint64)
    words = np.tile(own, (500, 1))
    flipped = rng.integers(0, 192, (len(words), flips))
    if flips == 1:
        flipped[:192, 0] = np.arange(192)
    for page, bits in enumerate(flipped.tolist()):
        for bit in bits:
            words[page, bit // 64] ^= np.uint64(1 << bit % 64)
    distance = rng.integers(0, 129, len(words))
    expected = [
        apart + 2 * sum((a ^ b) >> 19 * place & 0x7FFFF != 0 for a, b in pairs for place in range(3))
        for apart, pairs in zip(
            distance.tolist(),
            (list(zip(own.tolist(), other, strict=True)) for other in words.tolist()),
            strict=True,
        )
    ]
    first, all_pages = np.zeros(len(words), np.int64), np.arange(len(words))
    ranks = ranks_of(distance.astype(np.uint8), own[None], first, words, all_pages)
    assert ranks.tolist() == expected
    (short,), others = abridged_minima(own[None]), abridged_minima(words)
    least = [least_rank(*each) for each in zip(distance, np.full(500, short), others, strict=True)]
    unequal = np.array([lowest_bits(own) != lowest_bits(other) for other in words])
    assert least == (distance + 2 * unequal.sum(axis=1)).tolist()
    assert (np.array(least) <= expected).all()


def test_without_minima_the_rank_is_the_distance() -> None:
    words, distance = np.array([[1], [2]], np.uint64), np.array([5, 9])
    own, first = np.array([[7]], np.uint64), np.zeros(2, np.int64)
    assert ranks_of(distance.astype(np.uint8), own, first, words, np.arange(2)).tolist() == [5, 9]
    assert abridged_minima(words).tolist() == [0, 0]

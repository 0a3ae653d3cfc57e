"""SimHash: the paper's definition, bit for bit, in integers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import xxhash

from stream.fingerprint.hashes import hash_tokens
from stream.fingerprint.scheme import UNCERTAIN_BITS
from stream.fingerprint.simhash import TIES, bit_sums, simhash
from stream.fingerprint.weights import features, weigh


def by_hand(hashes: list[int], weights: list[int]) -> tuple[int, list[int]]:
    """The definition: +w for a 1, -w for a 0."""
    sums = [sum(w if h >> bit & 1 else -w for h, w in zip(hashes, weights, strict=True)) for bit in range(64)]
    ties = [TIES >> bit & 1 for bit in range(64)]
    return sum(1 << bit for bit, s in enumerate(sums) if s > 0 or (s == 0 and ties[bit])), sums


def test_one_feature_is_its_own_fingerprint() -> None:
    fingerprint, _ = simhash(np.array([0x0123456789ABCDEF], np.uint64), np.array([4096]))
    assert fingerprint == 0x0123456789ABCDEF


@pytest.mark.parametrize("n", [1, 2, 3, 100, 40_000])
def test_fingerprint_is_the_sign_of_each_sum(n: int) -> None:
    rng = np.random.default_rng(n)
    hashes = rng.integers(0, 2**64, n, np.uint64)
    weights = weigh(rng.integers(1, 50, n))
    expected, sums = by_hand(hashes.tolist(), weights.tolist())
    fingerprint, uncertain = simhash(hashes, weights)
    assert fingerprint == expected
    assert bit_sums(hashes, weights).tolist() == sums
    assert list(uncertain) == sorted(range(64), key=lambda bit: (abs(sums[bit]), bit))[:UNCERTAIN_BITS]


def test_a_tie_takes_the_bit_of_the_fixed_word() -> None:
    opposite = np.array([0x00FF00FF12345678, 0xFF00FF00EDCBA987], np.uint64)
    fingerprint, uncertain = simhash(opposite, np.array([4096, 4096]))
    assert fingerprint == TIES
    assert list(uncertain) == list(range(UNCERTAIN_BITS))


def test_no_feature_gives_the_fixed_word() -> None:
    assert simhash(np.empty(0, np.uint64), np.empty(0, np.int64))[0] == TIES


def test_weights_are_rounded_square_roots() -> None:
    counts = np.arange(1, 3000)
    assert weigh(counts).tolist() == [round(4096 * math.sqrt(tf)) for tf in counts.tolist()]


def test_features_are_distinct_hashes_with_the_weight_of_their_count() -> None:
    distinct, weights = features(hash_tokens([b"a", b"b", b"a", b"a", b"a"]))
    assert dict(zip(distinct.tolist(), weights.tolist(), strict=True)) == {
        xxhash.xxh3_64_intdigest(b"a"): 8192,
        xxhash.xxh3_64_intdigest(b"b"): 4096,
    }


def test_sums_beyond_32_bits_are_exact() -> None:
    hashes = np.array([2**64 - 1, 0], np.uint64)
    assert set(bit_sums(hashes, np.array([2**51 + 1, 2**51])).tolist()) == {1}

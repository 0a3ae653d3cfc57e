"""The sketch estimates Jaccard similarity for texts of any length."""

from __future__ import annotations

import numpy as np
import pytest

from stream.fingerprint.hashes import hash_tokens
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.sketch import matches, shingles, sketch

SCHEMES = [
    Scheme(),
    Scheme(sketch_bits=2),
    Scheme(sketch_bins=256, sketch_bits=2),
    Scheme(sketch_bins=192, sketch_bits=8),
]


def estimate(a: np.ndarray, b: np.ndarray, scheme: Scheme) -> float:
    one, two = (np.frombuffer(sketch(x, scheme), "<u8")[None] for x in (a, b))
    return scheme.similarity(int(matches(one, two, scheme.sketch_bits)[0]))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("n", [1, 2, 5, 40, 1000, 20_000])
def test_estimate_is_near_the_truth(scheme: Scheme, n: int) -> None:
    rng = np.random.default_rng(n)
    errors = []
    for _ in range(12):
        common, a, b = (rng.integers(0, 2**32, size, np.uint32) for size in (n, n // 4, n // 4))
        truth = n / (n + 2 * (n // 4))
        errors.append(estimate(np.append(common, a), np.append(common, b), scheme) - truth)
    chance = 2.0**-scheme.sketch_bits
    deviation = (0.25 / scheme.sketch_bins) ** 0.5 / (1 - chance)
    assert abs(np.mean(errors)) < 4 * deviation / 12**0.5
    assert np.max(np.abs(errors)) < 4.5 * deviation


@pytest.mark.parametrize("scheme", SCHEMES)
def test_sets_that_share_nothing_match_by_chance_only(scheme: Scheme) -> None:
    rng = np.random.default_rng(1)
    for n in (1, 3, 300):
        a, b = rng.integers(0, 2**32, (2, n), np.uint32)
        assert estimate(a, b, scheme) < 0.2 if n > 3 else estimate(a, b, scheme) < 0.35


@pytest.mark.parametrize("scheme", SCHEMES)
def test_sketch_is_planar(scheme: Scheme) -> None:
    rng = np.random.default_rng(2)
    one, two = (sketch(rng.integers(0, 2**32, 500, np.uint32), scheme) for _ in range(2))
    assert len(one) == scheme.sketch_bytes
    plane = scheme.sketch_bins // 8

    def bin_(data: bytes, j: int) -> list[int]:
        return [data[p * plane + j // 8] >> j % 8 & 1 for p in range(scheme.sketch_bits)]

    expected = sum(bin_(one, j) == bin_(two, j) for j in range(scheme.sketch_bins))
    a, b = (np.frombuffer(data, "<u8") for data in (one, two))
    assert matches(a[None], b[None], scheme.sketch_bits).tolist() == [expected]
    assert matches(a, np.stack([a, b]), scheme.sketch_bits).tolist() == [scheme.sketch_bins, expected]


def test_both_halves_of_the_bits_are_used() -> None:
    for n in (1, 30, 3000):
        bits = np.unpackbits(np.frombuffer(sketch(np.arange(n, dtype=np.uint32), Scheme()), np.uint8))
        assert 400 < bits.sum() < 624


def test_no_shingles_give_zeros() -> None:
    assert sketch(np.empty(0, np.uint32), Scheme()) == bytes(128)


def test_shingles_are_all_runs_and_their_order_matters() -> None:
    a, b, c = hash_tokens([b"a", b"b", b"c"]).astype(np.uint32)
    text = np.array([a, b, c, a, b], np.uint32)
    assert shingles(text, 2)[0] == shingles(text, 2)[3]
    assert len(set(shingles(text, 2).tolist())) == 3
    assert shingles(np.array([a, b]), 2) != shingles(np.array([b, a]), 2)


def test_a_text_shorter_than_a_shingle_is_one_shingle() -> None:
    units = hash_tokens([b"a", b"b"]).astype(np.uint32)
    assert shingles(units, 5).shape == (1,)
    assert shingles(units[:0], 5).shape == (0,)

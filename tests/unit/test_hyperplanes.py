"""Hashed features are random hyperplanes that nobody stores."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.fingerprint.hashing.hash_functions import hasher
from stream.fingerprint.lanes import distances, from_integers
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.fingerprint.simhash import simhash
from stream.fingerprint.weighted_features import fold_signs
from tests.seeds.hyperplanes import (
    angle,
    cosine,
    expected_distance,
    normal_planes,
    planes_of,
    signs,
)


@given(st.lists(st.integers(-(2**30), 2**30), min_size=1, max_size=40), st.sampled_from([32, 64, 128]))
def test_the_kernel_gives_the_signs_of_projections(vector: list[int], width: int) -> None:
    scheme = Scheme(width=width)  # type: ignore[arg-type]
    hashes = hasher(scheme, PUBLIC_SEED)([str(d).encode() for d in range(len(vector))], width)
    fingerprint = simhash(*fold_signs(hashes, np.array(vector, np.int64)), width, scheme.tie_word)
    assert signs(np.array([vector]), planes_of(hashes, width), scheme.tie_word) == [fingerprint]


@pytest.mark.parametrize("degrees", [5, 30, 60, 90, 120, 170])
@pytest.mark.parametrize("planes", ["normal", "hashed"])
def test_the_distance_estimates_the_angle(degrees: int, planes: str) -> None:
    """Mean over 60 pairs of vectors of 300 dimensions, 128 bits each: an error of five deviations fails."""
    width, dimensions, pairs = 128, 300, 60
    rng = np.random.default_rng(degrees)
    a = rng.standard_normal((pairs, dimensions))
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    other = rng.standard_normal((pairs, dimensions))
    other -= (other * a).sum(axis=1, keepdims=True) * a
    other /= np.linalg.norm(other, axis=1, keepdims=True)
    theta = math.radians(degrees)
    b = math.cos(theta) * a + math.sin(theta) * other
    if planes == "normal":
        matrix = normal_planes(width, dimensions, seed=1)
    else:
        names = [str(d).encode() for d in range(dimensions)]
        matrix = planes_of(hasher(Scheme(), PUBLIC_SEED)(names, width), width).astype(np.float64)
    apart = distances(from_integers(signs(a, matrix), width), from_integers(signs(b, matrix), width))
    share = theta / math.pi
    deviation = math.sqrt(share * (1 - share) * width / pairs)
    assert abs(apart.mean() - expected_distance(math.cos(theta), width)) < 5 * deviation
    assert expected_distance(math.cos(theta), width) == pytest.approx(width * share)


def test_estimates_are_right_where_they_are_exact() -> None:
    assert (angle(0, 64), angle(32, 64), angle(64, 64)) == (0, math.pi / 2, math.pi)
    assert cosine(0, 64) == 1
    assert cosine(32, 64) == pytest.approx(0, abs=1e-15)
    assert cosine(64, 64) == -1
    assert expected_distance(1 + 1e-12, 64) == 0


def test_distances_of_every_width() -> None:
    values = [0, 1, 2**64 - 1, 2**127 | 1]
    wide = from_integers(values, 128)
    assert wide.shape == (4, 2)
    assert distances(wide, wide[:1]).tolist() == [0, 1, 64, 2]
    narrow = from_integers(values[:3], 64)
    assert distances(narrow[:1], narrow).tolist() == [0, 1, 64]
    assert from_integers([], 128).shape == (0, 2)

"""The worked examples of the seed documents 000 to 004, through the kernel that fingerprints pages.

Bits are written as the seeds write them, most significant first; sums as well.
"""

from __future__ import annotations

import numpy as np
import pytest

from stream.fingerprint.default_weights import UNIT
from stream.fingerprint.fingerprinter import Fingerprinter
from stream.fingerprint.lanes import distances, from_integers
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.simhash import TIES, bit_sums, simhash
from stream.fingerprint.weighted_features import fold_signs, weighted_pairs


def kernel(pairs: list[tuple[str, float]], ties: int = 0) -> tuple[str, list[float]]:
    """Fingerprint and sums of features given as (hash in binary, weight)."""
    width = len(pairs[0][0])
    hashes = np.array([int(bits, 2) for bits, _ in pairs], np.uint64)
    hashes, weights = fold_signs(hashes, weighted_pairs(pairs)[1])
    fingerprint = simhash(hashes, weights, width, ties)
    sums = bit_sums(hashes, weights, width) / UNIT
    return f"{fingerprint:0{width}b}", sums[::-1].tolist()


def apart(a: str, b: str) -> int:
    return int(distances(*(from_integers([int(bits, 2)], 64) for bits in (a, b)))[0])


def test_seed_001_five_keywords_of_six_bits() -> None:
    """Its last line has 100115,1 instead of 100111, a typo."""
    keywords = {
        "美国": ("100101", 5),
        "51区": ("101011", 2),
        "飞碟": ("100111", 3),
        "灰色": ("101111", 1),
        "外星人": ("111011", 4),
    }
    fingerprint, sums = kernel(list(keywords.values()))
    assert sums == [15, -7, -1, 3, 5, 15]
    assert fingerprint == "100111"


def test_seed_002_document_and_three_planes() -> None:
    words = ["101", "011", "100", "001", "110"]
    document = [1, 2, 0, 3, 0]
    fingerprint, sums = kernel(list(zip(words, document, strict=True)))
    assert sums == [-4, -2, 6]
    assert fingerprint == "001"


def test_seed_003_three_dimensions_two_bits() -> None:
    """It writes V[0] = 3 - 2 + 4 = 7; that is 5, with the same sign."""
    fingerprint, sums = kernel([("10", 3.0), ("01", 2.0), ("11", 4.0)])
    assert sums == [5, 3]
    assert fingerprint == "11"


def test_seed_004_shanghai_and_beijing() -> None:
    fingerprint, sums = kernel([("01011001", 45.11), ("11001011", 32.09)])
    assert sums == pytest.approx([-13.02, 77.20, -77.20, 13.02, 77.20, -77.20, -13.02, 77.20], abs=1e-3)
    assert fingerprint == "01011001"


def test_seed_000_sums_become_bits() -> None:
    """13 108 -22 -5 -32 55 give 110001. Each sum is made by two features that cancel in every other bit."""
    pairs = []
    for place, wanted in enumerate([13, 108, -22, -5, -32, 55]):
        bit = 1 << 5 - place
        pairs += [(f"{bit:06b}", wanted / 2), (f"{0b111111:06b}", wanted / 2)]
    fingerprint, sums = kernel(pairs)
    assert sums == [13, 108, -22, -5, -32, 55]
    assert fingerprint == "110001"


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [("100111", "101010", 3), ("100101", "101100", 2), ("00101110", "00001111", 2)],
    ids=["seed 000", "seed 002", "seed 004"],
)
def test_distances(a: str, b: str, expected: int) -> None:
    assert apart(a, b) == expected


def test_seed_000_cat_mat_and_ice_cream() -> None:
    """Pairs of characters, 32 bits, each occurrence counts 1, 0 gives a 1: the seed has 4, 12 and 16."""
    scheme = Scheme(width=32, features="ngrams", feature_length=2, weights="tf", ties="one", hash="xxh3")
    fingerprinter = Fingerprinter(scheme)
    sentences = ["the cat sat on the mat", "the cat sat on a mat", "we all scream for ice cream"]
    one, two, three = (f"{fingerprinter.text(each).fingerprint:032b}" for each in sentences)
    assert apart(one, two) < min(apart(one, three), apart(two, three))
    assert apart(one, two) <= 8


@pytest.mark.parametrize(("ties", "expected"), [("zero", "0110"), ("one", "1111")])
def test_ties_as_seeds_002_to_004_and_as_seed_000(ties: str, expected: str) -> None:
    word = Scheme(ties=ties).tie_word  # type: ignore[arg-type]
    fingerprint, sums = kernel([("1110", 1), ("0111", 1)], word)
    assert sums == [0, 2, 2, 0]
    assert fingerprint == expected


@pytest.mark.parametrize("width", [32, 64, 128])
def test_ties_by_default_are_a_fixed_word_of_the_width(width: int) -> None:
    word = Scheme(width=width).tie_word  # type: ignore[arg-type]
    assert word & 2**64 - 1 == TIES & 2**width - 1
    assert word < 2**width
    assert abs(word.bit_count() - width / 2) <= width / 8
    nothing = Fingerprinter(Scheme(width=width)).features([])  # type: ignore[arg-type]
    assert nothing.fingerprint == word

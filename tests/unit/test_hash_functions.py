"""Hashes of features: published test vectors, and the same value everywhere."""

from __future__ import annotations

import numpy as np
import pytest

from stream.fingerprint.hashing.hash_functions import HOMES, hasher
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED

FOX = b"The quick brown fox jumps over the lazy dog"
PUBLISHED = [  # hash, width, input, value: of the algorithms' own documents and test suites
    ("md5", 128, b"abc", 0x900150983CD24FB0D6963F7D28E17F72),  # RFC 1321, A.5
    ("md5", 64, b"abc", 0x900150983CD24FB0),
    ("md5", 32, b"abc", 0x90015098),
    ("sha1", 128, b"abc", 0xA9993E364706816ABA3E25717850C26C),  # RFC 3174, 7.3
    ("sha1", 64, b"", 0xDA39A3EE5E6B4B0D),
    ("fnv1a", 32, b"", 0x811C9DC5),  # Noll's test vectors, as all of FNV
    ("fnv1a", 32, b"foobar", 0xBF9CF968),
    ("fnv1a", 64, b"a", 0xAF63DC4C8601EC8C),
    ("fnv1a", 64, b"foobar", 0x85944171F73967E8),
    ("fnv1a", 128, b"a", 0xD228CB696F1A8CAF78912B704E4A8964),
    ("fnv1a", 128, b"foobar", 0x343E1662793C64BF6F0D3597BA446F18),
    ("jenkins", 32, b"a", 0xCA2E9442),
    ("jenkins", 32, FOX, 0x519E91F5),
    ("murmur3", 32, b"", 0),
    ("murmur3", 32, b"hello", 0x248BFA47),
    ("murmur3", 32, FOX, 0x2E4FF723),
    ("murmur3", 64, FOX, 0xE34BBC7BBC071B6C),  # h1 of x64_128
    ("murmur3", 128, FOX, 0x7A433CA9C49A9347E34BBC7BBC071B6C),  # h2, h1
    (
        "multilinear",
        64,
        b"",
        0xF37EE45C499BD668,
    ),  # ours, by its definition (see `plain_fingerprint.token_hash`)
    ("multilinear", 64, b"ab", 0xDC58D9DAB489C9CC),
    ("multilinear", 32, b"ab", 0xB489C9CC),
    ("multilinear", 128, b"ab", 0x812EAEAB3D15DD28DC58D9DAB489C9CC),
    ("xxh3", 64, b"", 0x2D06800538D394C2),
    ("xxh3", 32, b"", 0x38D394C2),
    ("xxh3", 128, b"", 0x99AA06D3014798D86001C324468D497F),
]


def value(name: str, width: int, data: bytes) -> int:
    found = hasher(Scheme(hash=name), PUBLIC_SEED)([data], width)  # type: ignore[arg-type]
    return int.from_bytes(found.astype(">u8").tobytes(), "big")


@pytest.mark.parametrize(("name", "width", "data", "expected"), PUBLISHED)
def test_published_values(name: str, width: int, data: bytes, expected: int) -> None:
    assert value(name, width, data) == expected


def test_every_hash_is_tested_against_published_values() -> None:
    assert {name for name, *_ in PUBLISHED} == set(HOMES)


@pytest.mark.parametrize("name", HOMES)
@pytest.mark.parametrize("width", [32, 64, 128])
def test_columns_have_the_shape_of_the_width(name: str, width: int) -> None:
    make = hasher(Scheme(hash=name), PUBLIC_SEED)  # type: ignore[arg-type]
    features = [str(number).encode() for number in range(2000)]
    found = make(features, width)
    assert found.dtype == np.uint64
    assert found.shape == ((2000, 2) if width == 128 else (2000,))
    assert make([], width).shape[0] == 0
    bits = np.unpackbits(found.astype("<u8").view(np.uint8).reshape(2000, -1), axis=1, bitorder="little")
    share = bits[:, : min(width, 64)].mean(axis=0)
    # FNV-1a hardly moves its upper bits in words of a few bytes: a reason why it is not the default.
    assert name == "fnv1a" or (abs(share - 0.5) < 0.06).all(), "a bit that is not as often 1 as 0"
    assert width != 32 or not bits[:, 32:].any()


@pytest.mark.parametrize("name", HOMES)
def test_every_hash_is_keyed_by_the_seed(name: str) -> None:
    features = [str(number).encode() for number in range(100)]
    scheme = Scheme(hash=name)  # type: ignore[arg-type]
    public, *others = (
        hasher(scheme, seed)(features, 64).tolist() for seed in (bytes(16), b"1" * 16, b"2" * 16)
    )
    assert not set(public) & set(others[0]) | set(others[0]) & set(others[1])

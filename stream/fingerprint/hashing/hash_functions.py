"""Looks up the hash function that the scheme option `hash` selects.

Every function takes `(features in UTF-8, width)` and returns uint64: `(n,)` for 32 and 64 bits, with the
upper half zero for 32, and `(n, 2)` for 128, the upper half first. None is salted, so all machines and runs
agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.scheme import Scheme

Hash = Callable[[Sequence[bytes], int], NDArray[np.uint64]]

HOMES: Final = {
    "polynomial": "stream.fingerprint.hashing.polynomial",
    "xxh3": "stream.fingerprint.hashing.xxh3",
    "md5": "stream.fingerprint.hashing.digests",
    "sha1": "stream.fingerprint.hashing.digests",
    "fnv1a": "stream.fingerprint.hashing.fnv",
    "jenkins": "stream.fingerprint.hashing.jenkins",
    "murmur3": "stream.fingerprint.hashing.murmur",
}


def hasher(scheme: Scheme) -> Hash:
    """The function that the scheme selects."""
    return cast(Hash, getattr(import_module(HOMES[scheme.hash]), scheme.hash))


def from_big_endian(digests: Iterable[bytes], width: int) -> NDArray[np.uint64]:
    """An array of hashes from digests of `width` bits each."""
    words: NDArray[Any] = np.frombuffer(b"".join(digests), f">u{min(width, 64) // 8}").astype(np.uint64)
    return words.reshape(-1, 2) if width > 64 else words


def from_integers(values: Iterable[int], width: int) -> NDArray[np.uint64]:
    """An array of hashes from integers below 2**width."""
    return from_big_endian((value.to_bytes(width // 8, "big") for value in values), width)

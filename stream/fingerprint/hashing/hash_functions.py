"""Looks up the hash function that the scheme option `hash` selects.

Every function takes `(features in UTF-8, width)` and returns uint64: `(n,)` for 32 and 64 bits, with the
upper half zero for 32, and `(n, 2)` for 128, the upper half first.

The default, `multilinear`, is keyed by the seed. The others are published functions without a key. For some
of them, collisions are known that hold for every key put before the feature or in their initial state. Under
a seed other than the public one, they hash a keyed digest of each feature instead.

A new function is a file beside this one, with an entry in HOMES and in the option `hash` of `Scheme`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import feature_key, hash_keys

Hash = Callable[[Sequence[bytes], int], NDArray[np.uint64]]

HOMES: Final = {
    "multilinear": "stream.fingerprint.hashing.multilinear",
    "xxh3": "stream.fingerprint.hashing.xxh3",
    "md5": "stream.fingerprint.hashing.digests",
    "sha1": "stream.fingerprint.hashing.digests",
    "fnv1a": "stream.fingerprint.hashing.fnv",
    "jenkins": "stream.fingerprint.hashing.jenkins",
    "murmur3": "stream.fingerprint.hashing.murmur",
}


def hasher(scheme: Scheme, seed: bytes) -> Hash:
    """Return the function that the scheme selects, keyed by the seed."""
    function = getattr(import_module(HOMES[scheme.hash]), scheme.hash)
    if scheme.hash == "multilinear":
        return partial(function, keys=hash_keys(seed))
    key = feature_key(seed)
    return cast(Hash, function) if key is None else partial(_of_digests, function, key)


def _of_digests(function: Hash, key: bytes, features: Sequence[bytes], width: int) -> NDArray[np.uint64]:
    return function([hashlib.blake2b(each, key=key, digest_size=16).digest() for each in features], width)


def from_big_endian(digests: Iterable[bytes], width: int) -> NDArray[np.uint64]:
    """Return an array of hashes from digests of `width` bits each."""
    words: NDArray[Any] = np.frombuffer(b"".join(digests), f">u{min(width, 64) // 8}").astype(np.uint64)
    return words.reshape(-1, 2) if width > 64 else words


def from_integers(values: Iterable[int], width: int) -> NDArray[np.uint64]:
    """Return an array of hashes from integers below 2**width."""
    return from_big_endian((value.to_bytes(width // 8, "big") for value in values), width)

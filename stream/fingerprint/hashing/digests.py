"""MD5 (RFC 1321) and SHA-1 (RFC 3174), by hashlib: the first bits of the digest, read big-endian."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.hashing.hash_functions import from_big_endian


def md5(features: Sequence[bytes], width: int) -> NDArray[np.uint64]:
    """Return the first `width` bits of MD5's 128."""
    size = width // 8
    digests = (hashlib.md5(each, usedforsecurity=False).digest()[:size] for each in features)
    return from_big_endian(digests, width)


def sha1(features: Sequence[bytes], width: int) -> NDArray[np.uint64]:
    """Return the first `width` bits of SHA-1's 160."""
    size = width // 8
    digests = (hashlib.sha1(each, usedforsecurity=False).digest()[:size] for each in features)
    return from_big_endian(digests, width)

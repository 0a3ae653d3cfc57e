"""XXH3 (Collet)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xxhash
from numpy.typing import NDArray

from stream.fingerprint.hashing.hash_functions import from_big_endian


def xxh3(features: Sequence[bytes], width: int) -> NDArray[np.uint64]:
    """XXH3 with seed 0. The 32-bit hash is the lower half of the 64-bit one."""
    if width > 64:
        return from_big_endian(map(xxhash.xxh3_128_digest, features), 128)
    hashes = from_big_endian(map(xxhash.xxh3_64_digest, features), 64)
    return hashes & np.uint64(2**width - 1)

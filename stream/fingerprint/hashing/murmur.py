"""MurmurHash3 (Appleby), by mmh3, seed 0: x86_32 for 32 bits, x64_128 for 128, its first half for 64."""

from __future__ import annotations

from collections.abc import Sequence

import mmh3
import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.hashing.hash_functions import from_integers


def murmur3(features: Sequence[bytes], width: int) -> NDArray[np.uint64]:
    """MurmurHash3. 128 bits are h1 + h2 * 2**64, as in mmh3; 64 bits are h1."""
    if width == 32:
        return from_integers(map(mmh3.mmh3_32_uintdigest, features), 32)
    values = map(mmh3.mmh3_x64_128_uintdigest, features)
    if width == 64:
        return from_integers((value & 2**64 - 1 for value in values), 64)
    return from_integers(values, 128)

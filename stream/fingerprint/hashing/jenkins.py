"""Jenkins' one-at-a-time hash (Dr. Dobb's Journal, 1997), which has 32 bits.

For 64 and 128 bits, several hashes with different initial states are concatenated. Hash i starts from i times
the golden ratio's digits, so that the least significant 32 bits are the published hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.hashing.hash_functions import from_integers

_MASK: Final = 0xFFFFFFFF
_GOLDEN: Final = 0x9E3779B9


def jenkins(features: Sequence[bytes], width: int) -> NDArray[np.uint64]:
    """`width` / 32 one-at-a-time hashes, concatenated."""
    words = range(width // 32)
    return from_integers(
        (
            sum(one_at_a_time(feature, word * _GOLDEN & _MASK) << 32 * word for word in words)
            for feature in features
        ),
        width,
    )


def one_at_a_time(data: bytes, state: int = 0) -> int:
    """Return the 32-bit hash of `data` with the initial value `state`."""
    for byte in data:
        state = (state + byte) & _MASK
        state = (state + (state << 10)) & _MASK
        state ^= state >> 6
    state = (state + (state << 3)) & _MASK
    state ^= state >> 11
    return (state + (state << 15)) & _MASK

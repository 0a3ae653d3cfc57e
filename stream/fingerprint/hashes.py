"""Tokens -> 64-bit hashes, by xxh3 (seed 0), the same on every machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import xxhash
from numpy.typing import NDArray

HASH_BYTES: Final = 16
"""Size of a text hash."""

_FIRST: Final = np.uint32(0x7FEB352D)
_SECOND: Final = np.uint32(0x846CA68B)


def hash_tokens(tokens: Sequence[bytes]) -> NDArray[np.uint64]:
    """xxh3_64 of each UTF-8 token, (n,) in the order of the tokens."""
    # Digests are joined and read at once: no Python integer a token.
    digests = b"".join(map(xxhash.xxh3_64_digest, tokens))
    return np.frombuffer(digests, ">u8").astype(np.uint64)


def hash_text(encoded: bytes) -> bytes:
    """xxh3_128 of a whole text, 16 bytes big-endian: equal for equal normalised texts."""
    return xxhash.xxh3_128_digest(encoded)


def mix(values: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Wellons' `lowbias32` (Hash Prospector, 2018), in place: a bijection that spreads every input bit over
    all output bits."""
    shifted = values >> np.uint32(16)
    values ^= shifted
    values *= _FIRST
    np.right_shift(values, np.uint32(15), out=shifted)
    values ^= shifted
    values *= _SECOND
    np.right_shift(values, np.uint32(16), out=shifted)
    values ^= shifted
    return values

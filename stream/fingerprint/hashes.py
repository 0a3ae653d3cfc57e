"""Tokens -> 64-bit hashes, by xxh3 (seed 0), the same on every machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import xxhash
from numpy.typing import NDArray

HASH_BYTES: Final = 16
"""Size of a text hash."""

_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)


def hash_tokens(tokens: Sequence[bytes]) -> NDArray[np.uint64]:
    """xxh3_64 of each UTF-8 token, (n,) in the order of the tokens."""
    # Digests are joined and read at once: no Python integer a token.
    digests = b"".join(map(xxhash.xxh3_64_digest, tokens))
    return np.frombuffer(digests, ">u8").astype(np.uint64)


def hash_characters(points: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """A 64-bit hash of each code point, (n,): the finaliser of SplitMix64."""
    mixed = points.astype(np.uint64)
    mixed += np.uint64(1)
    mixed *= _GOLDEN
    return mix(mixed)


def hash_text(encoded: bytes) -> bytes:
    """xxh3_128 of a whole text, 16 bytes big-endian: equal for equal normalised texts."""
    return xxhash.xxh3_128_digest(encoded)


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser (Steele, Lea and Flood, OOPSLA 2014), in place: a bijection that spreads every
    input bit over all output bits."""
    values ^= values >> np.uint64(30)
    values *= _FIRST
    values ^= values >> np.uint64(27)
    values *= _SECOND
    values ^= values >> np.uint64(31)
    return values

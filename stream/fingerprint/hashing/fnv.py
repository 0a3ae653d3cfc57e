"""FNV-1a (Fowler, Noll and Vo; RFC 9923) of 32, 64 and 128 bits. Seed 004 uses 64 bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.hashing.hash_functions import from_integers

_PRIME: Final = {32: 2**24 + 0x193, 64: 2**40 + 0x1B3, 128: 2**88 + 0x13B}
_BASIS: Final = {32: 0x811C9DC5, 64: 0xCBF29CE484222325, 128: 0x6C62272E07BB014262B821756295C58D}


def fnv1a(features: Sequence[bytes], width: int) -> NDArray[np.uint64]:
    """FNV-1a of `width` bits: each byte is XORed in, then the hash is multiplied."""
    return from_integers(_hash(features, width), width)


def _hash(features: Sequence[bytes], width: int) -> Iterator[int]:
    prime, basis, mask = _PRIME[width], _BASIS[width], 2**width - 1
    for feature in features:
        value = basis
        for byte in feature:
            value = (value ^ byte) * prime & mask
        yield value

"""Fingerprints of any width as arrays of 64-bit lanes.

n fingerprints are uint64 of shape (n, lanes), with the most significant lane first; bit i of a fingerprint
has the value 2**i. Callers of `as_words` may have those of up to 64 bits in the shape (n,).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stream.errors import SettingsError
from stream.fingerprint.row import WORD

WIDTHS: Final = (32, 64, 128)
"""Supported widths of fingerprints in bits."""


def words_of(width: int) -> int:
    """Number of lanes of a fingerprint of `width` bits. Raises SettingsError for an unsupported width."""
    if width not in WIDTHS:
        raise SettingsError(f"width: {width} bits; fingerprints have {', '.join(map(str, WIDTHS))}")
    return -(-width // WORD)


def as_words(fingerprints: NDArray[np.uint64], width: int) -> NDArray[np.uint64]:
    """The fingerprints as (n, lanes). Raises SettingsError for a wrong shape, or bits beyond the width."""
    count = words_of(width)
    if fingerprints.dtype != np.uint64:
        raise SettingsError(f"fingerprints: expected uint64, not {fingerprints.dtype}")
    columns = fingerprints.reshape(-1, 1) if fingerprints.ndim == 1 else fingerprints
    if columns.ndim != 2 or columns.shape[1] != count:
        raise SettingsError(
            f"fingerprints: shape {fingerprints.shape} is not that of {width} bits, (n, {count})"
        )
    if width < WORD and len(columns) and int(columns.max()) >> width:
        raise SettingsError(f"fingerprints: {int(columns.max()):x} has more than {width} bits")
    return columns


def from_integers(fingerprints: Sequence[int], width: int) -> NDArray[np.uint64]:
    """Convert integers, as the fingerprinter returns them, to fingerprints (n, lanes)."""
    size = 8 * words_of(width)
    content = b"".join(each.to_bytes(size, "big") for each in fingerprints)
    return as_words(np.frombuffer(content, ">u8").astype(np.uint64).reshape(-1, size // 8), width)


def integers(fingerprints: NDArray[np.uint64]) -> list[int]:
    """The fingerprints (n, lanes) as integers."""
    values: list[Any] = fingerprints.tolist()
    return [each[0] if len(each) == 1 else each[0] << WORD | each[1] for each in values]


def first_words(fingerprints: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The most significant lane of each fingerprint (n,): distances of these are lower bounds."""
    return fingerprints[:, 0].copy()


def distances(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Hamming distances of n pairs, (n,), of (n, lanes) each. `a` or `b` may be (1, lanes)."""
    if a.shape[1] == 1:
        return np.asarray(np.bitwise_count(a[:, 0] ^ b[:, 0]), np.uint8)
    return np.asarray(np.bitwise_count(a ^ b).sum(axis=1, dtype=np.uint8))


def to_hex(words: NDArray[np.uint64], width: int) -> list[str]:
    """Each fingerprint in width / 4 hex digits."""
    content = words.astype(">u8").tobytes().hex()
    size, digits = words.shape[1] * 16, width // 4
    return [content[end - digits : end] for end in range(size, len(content) + 1, size)]

"""Fingerprints of any width as arrays of 64-bit lanes.

Callers pass n fingerprints as uint64 of shape (n,) if the width is at most 64 bits, or (n, width / 64) with
the most significant lane first. Internally the shape is always (n, lanes). Bit i of a fingerprint has the
value 2**i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stream.errors import SettingsError
from stream.tables.arrays import I64, U8, U64

WIDTHS: Final = (32, 64, 128)
"""Supported widths of fingerprints in bits."""
WORD: Final = 64


def words_of(width: int) -> int:
    """Number of lanes of a fingerprint of `width` bits. Raises SettingsError for an unsupported width."""
    if width not in WIDTHS:
        raise SettingsError(f"width: {width} bits; fingerprints have {', '.join(map(str, WIDTHS))}")
    return -(-width // WORD)


def as_words(fingerprints: U64, width: int) -> U64:
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


def from_integers(fingerprints: Sequence[int], width: int) -> U64:
    """Convert integers, as the fingerprinter returns them, to fingerprints (n, lanes)."""
    size = 8 * words_of(width)
    content = b"".join(each.to_bytes(size, "big") for each in fingerprints)
    return as_words(np.frombuffer(content, ">u8").astype(np.uint64).reshape(-1, size // 8), width)


def distances(a: U64, b: U64) -> U8:
    """Hamming distances of n pairs, (n,), of (n, lanes) each. `a` or `b` may be (1, lanes)."""
    if a.shape[1] == 1:
        return np.asarray(np.bitwise_count(a[:, 0] ^ b[:, 0]), np.uint8)
    return np.asarray(np.bitwise_count(a ^ b).sum(axis=1, dtype=np.uint8))


def to_hex(words: U64, width: int) -> list[str]:
    """Each fingerprint in width / 4 hex digits."""
    content = words.astype(">u8").tobytes().hex()
    size, digits = words.shape[1] * 16, width // 4
    return [content[end - digits : end] for end in range(size, len(content) + 1, size)]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Near pairs: distinct (row, stored) pairs, sorted by row, then stored."""

    row: I64
    """Index of the query."""
    stored: I64
    """Index of the stored fingerprint."""
    distance: U8
    """Their Hamming distance."""

    def __len__(self) -> int:
        return len(self.row)

    @classmethod
    def none(cls) -> Pairs:
        """No pairs."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint8))

    @classmethod
    def merge(cls, parts: list[Pairs]) -> Pairs:
        """The union of the parts, sorted."""
        if not parts:
            return cls.none()
        row = np.concatenate([part.row for part in parts])
        stored = np.concatenate([part.stored for part in parts])
        distance = np.concatenate([part.distance for part in parts])
        order = np.lexsort((stored, row))
        row, stored = row[order], stored[order]
        keep = np.ones(len(row), bool)
        keep[1:] = (row[1:] != row[:-1]) | (stored[1:] != stored[:-1])
        return cls(row[keep], stored[keep], distance[order][keep])

"""The 128-bit seed that keys every hash of a fingerprint.

Whoever knows the hashes can craft words that move a fingerprint, or collide with the words of someone else's
page. Each journal therefore has a random seed, in its genesis. Fingerprints are comparable only under one
seed, so its digest is part of the scheme id. Commands without a journal use the public seed, or that of a
file.
"""

from __future__ import annotations

import functools
import hashlib
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from stream.fingerprint.keyed_hashes import HashKeys, multilinear_factors

SEED_BYTES: Final = 16
PUBLIC_SEED: Final = bytes(SEED_BYTES)
"""The seed of commands that are given no other. Everybody knows it."""
_HEX: Final = re.compile(r"[0-9a-fA-F]{32}")
_FACTORS: Final = 256
"""Factors that are kept in a table; words are rarely longer."""


def digest_of(seed: bytes) -> str:
    """Return 32 hex digits that identify a seed and do not reveal it."""
    return _derive(seed, b"digest", 16).hex()


@functools.cache
def hash_keys(seed: bytes) -> HashKeys:
    """Return the keys of token hashes."""
    words = np.frombuffer(_derive(seed, b"tokens", 32), "<u8").astype(np.uint64)
    state, added, left, right = words
    factors = multilinear_factors(state, _FACTORS)
    factors.flags.writeable = False  # shared by all fingerprinters
    return HashKeys(factors, state, added, left, right)


@functools.cache
def unit_keys(seed: bytes) -> HashKeys:
    """Return the keys of unit hashes. Sums are those of tokens, and the last function has a key of its own:
    the hashes of tokens, which fingerprints reveal, say nothing of the hashes of units."""
    left, right = np.frombuffer(_derive(seed, b"units", 16), "<u8").astype(np.uint64)
    return hash_keys(seed)._replace(left=left, right=right)


@functools.cache
def text_key(seed: bytes) -> bytes:
    """Return the key of the hash of whole texts (64 bytes)."""
    return _derive(seed, b"text", 64)


@functools.cache
def feature_key(seed: bytes) -> bytes | None:
    """Return the key under which features are hashed before a published hash function, or None for the public
    seed, under which these functions give their published values."""
    return None if seed == PUBLIC_SEED else _derive(seed, b"features", 32)


def url_hasher(seed: bytes) -> Callable[[str], bytes]:
    """Return a function that digests URL keys: 16 bytes, equal for equal keys and for no others that anybody
    could find. Whoever does not know the seed cannot tell of which URL a digest is."""
    return _hasher(seed, b"url")


def host_hasher(seed: bytes) -> Callable[[str], bytes]:
    """Return a function that digests hosts as `url_hasher` does URL keys."""
    return _hasher(seed, b"host")


def _hasher(seed: bytes, purpose: bytes) -> Callable[[str], bytes]:
    keyed = hashlib.blake2b(key=seed, person=b"neardup." + purpose, digest_size=16)

    def digest(text: str) -> bytes:
        hashing = keyed.copy()
        hashing.update(text.encode())
        return hashing.digest()

    return digest


def _derive(seed: bytes, purpose: bytes, size: int) -> bytes:
    """Return a key for one purpose, from which neither the seed nor another key can be found."""
    return hashlib.blake2b(key=seed, person=b"neardup." + purpose, digest_size=size).digest()


def random_seed() -> bytes:
    """Return a seed that nobody can guess."""
    return secrets.token_bytes(SEED_BYTES)


def read_seed(path: str) -> bytes:
    """Return the seed in a file of 32 hex digits. Raises ValueError, which does not quote the content."""
    try:
        written = Path(path).read_text("ascii").strip()
    except OSError as error:
        raise ValueError(f"seed_file={path}: {error.strerror}") from None
    except UnicodeDecodeError:
        written = ""
    if not _HEX.fullmatch(written):
        raise ValueError(f"seed_file={path}: is not 32 hexadecimal digits, as of `openssl rand -hex 16`")
    return bytes.fromhex(written)


PUBLIC_DIGEST: Final = digest_of(PUBLIC_SEED)

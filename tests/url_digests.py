"""Digests of the URLs of records that tests make, under the public seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.row import NO_DIGEST
from stream.fingerprint.seed import PUBLIC_SEED, url_hasher

_digest = url_hasher(PUBLIC_SEED)


def digest_of_url(url_key: str | None) -> bytes:
    """Return the digest of a URL key."""
    return NO_DIGEST if url_key is None else _digest(url_key)


def digests_of_urls(url_keys: Sequence[str | None]) -> NDArray[np.uint8]:
    """Return the digests (n, 16) of URL keys, as a column of rows."""
    return np.frombuffer(bytearray().join(map(digest_of_url, url_keys)), np.uint8).reshape(-1, 16)

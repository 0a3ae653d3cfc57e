"""The buckets of a batch."""

from __future__ import annotations

import numpy as np

from stream.judge.bucket_collisions import numbered


def test_keys_are_numbered_in_the_order_in_which_they_come() -> None:
    keys = np.random.default_rng(1).integers(0, 300, 1000, dtype=np.uint64)
    for some in (keys, keys << np.uint64(50), keys[:1], keys[:0]):
        distinct, of_keys = numbered(some)
        assert distinct.tolist() == list(dict.fromkeys(some.tolist()))
        assert distinct[of_keys].tolist() == some.tolist()

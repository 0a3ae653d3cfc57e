"""The anchors created within a batch, compared with brute force."""

from __future__ import annotations

import numpy as np
import pytest

from stream.fingerprint.minima import MINIMA_WORDS
from stream.judge.decision.batch_anchors import (
    Buckets,
    StoredBuckets,
    enter,
    leave,
    members_near,
    shared_buckets,
)
from stream.judge.decision.bucket_collisions import collisions, numbered
from stream.judge.rule import Rule
from stream.messages.verdict_options import VerdictOptions
from stream.tables.arrays import U64
from stream.tables.reserves.keys import RESERVES
from stream.tables.search.prefixes_compiled import keys_of
from stream.tables.search.rank import RANKS, ranks_of
from stream.tables.search.result import ProbedReserves
from tests.judged_crawls import SCHEME

ROWS = 700


def buckets_of(prints: U64, words: U64, cap: int) -> Buckets:
    """The buckets of pages of one batch, none of which has entered."""
    rule = Rule(VerdictOptions(bucket_cap=cap), SCHEME)
    keys = keys_of(words, rule.design().pieces)
    every = ProbedReserves(
        np.ones(len(keys), np.bool_), np.arange(len(keys)), np.zeros((len(keys), RESERVES), np.int64)
    )
    stored = StoredBuckets(np.zeros(keys.shape, np.int64), every)
    buckets, _ = shared_buckets(collisions(keys), words, prints, stored, cap)
    return buckets


def nearest(ranks: dict[int, int], most: int) -> list[tuple[int, int]]:
    """Those of the least rank, of those of equal rank the oldest."""
    return sorted((rank, member) for member, rank in ranks.items())[:most]


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("cap", [3, 128, 1000])
def test_members_are_found_whatever_rank_is_expected(lanes: int, cap: int) -> None:
    rng, most, within = np.random.default_rng(cap + lanes), 20, 12
    # Bits of the fingerprints and minima differ in some pages much and in others little.
    prints = rng.integers(0, 1 << 4, (ROWS, lanes), dtype=np.uint64) << np.uint64(20)
    prints[rng.random(ROWS) < 0.3] ^= np.uint64(0xFF)
    words = np.full((ROWS, MINIMA_WORDS), 0x123456789ABCDEF, np.uint64)
    words[rng.random(ROWS) < 0.3, 1] ^= np.uint64(1)  # in the lowest bits of a minimum
    words[rng.random(ROWS) < 0.3, 2] ^= np.uint64(1 << 18)  # beyond them
    buckets = buckets_of(prints, words, cap)
    found = 0
    for row in range(ROWS):
        if row % 5 == 4:
            leave(row - 2, buckets)
        probed = buckets.probed[buckets.probed_end[row] : buckets.probed_end[row + 1]]
        inside = [buckets.members[buckets.first[each] :][: buckets.size[each]] for each in probed]
        members = np.unique(np.concatenate([*inside, np.zeros(0, np.int64)]))
        apart = np.bitwise_count(prints[members] ^ prints[row]).sum(axis=1, dtype=np.uint8)
        ranks = ranks_of(apart, words, np.full(len(members), row), words, members)
        reach = int(rng.choice([RANKS - 1, 9, 0, -1]))
        near = (apart <= within) & (ranks <= reach)
        buckets.expected[0] = rng.integers(0, 30)
        count, looked = members_near(row, True, within, reach, most, buckets)
        got = dict(zip(buckets.nearby[:count].tolist(), buckets.ranks[:count].tolist(), strict=True))
        want = dict(zip(members[near].tolist(), ranks[near].tolist(), strict=True))
        assert len(got) == count
        assert nearest(got, most) == nearest(want, most)
        assert got.items() <= want.items()
        assert buckets.apart[:count].tolist() == [apart[members == each][0] for each in got]
        assert looked == sum(map(len, inside))
        found += count > most
        enter(row, buckets)
    assert found > 100 or cap == 3


def test_keys_are_numbered_in_the_order_in_which_they_come() -> None:
    keys = np.random.default_rng(1).integers(0, 300, 1000, dtype=np.uint64)
    for some in (keys, keys << np.uint64(50), keys[:1], keys[:0]):
        distinct, of_keys = numbered(some)
        assert distinct.tolist() == list(dict.fromkeys(some.tolist()))
        assert distinct[of_keys].tolist() == some.tolist()

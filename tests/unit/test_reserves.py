"""Reserves: their keys, who enters them, who stayed out of what, and pages with masks."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from stream.errors import StateError
from stream.fingerprint.row import Status
from stream.judge.decision.batch_anchors import CrowdedBuckets
from stream.judge.explain.pair import PairPage, judge_pair
from stream.judge.judge import Judge
from stream.judge.rule import Rule
from stream.messages.verdict import Verdict
from stream.messages.verdict_options import VerdictOptions
from stream.tables.arrays import U64
from stream.tables.reserves.keys import (
    BUCKETS,
    FIRST_PAIRS,
    LAST_RESORT,
    PAIRS,
    RESERVES,
    keys_of_reserves,
    minima_of_reserve,
    prefix_of_reserve,
)
from stream.tables.reserves.keys import (
    entries_of as entries_of_reserves,
)
from stream.tables.reserves.stayed_out import looking_further, nobody, with_anchors
from tests.judged_crawls import SCHEME, entries_of, open_state, packed_minima, templates
from tests.oracle import PAIRS as EVERY_PAIR
from tests.plain_fingerprint import mix64

PAIRS_OF_TABLES = [tuple(each) for each in FIRST_PAIRS.subsets.tolist()]


def words_of(minima: list[int]) -> U64:
    packed = packed_minima(minima)
    return np.array([[packed >> 64 * word & 2**64 - 1 for word in range(8)]], np.uint64)


def test_the_pairs_are_ten_triangles_of_which_three_come_first() -> None:
    reserves = [tuple(minima_of_reserve(reserve)) for reserve in range(RESERVES)]
    assert [*PAIRS_OF_TABLES, *reserves[:-1]] == EVERY_PAIR
    assert reserves[LAST_RESORT] == tuple(range(30))
    assert (PAIRS, RESERVES, BUCKETS) == (9, 22, 31)


def test_keys_tell_reserves_from_each_other_and_depend_on_their_minima_alone() -> None:
    equal = words_of([7] * 30)
    prefixes = [int(prefix_of_reserve(equal, 0, reserve)) for reserve in range(RESERVES)]
    assert len(set(prefixes)) == len(set(keys_of_reserves(equal)[0].tolist())) == RESERVES
    minima = list(range(100, 130))
    before = keys_of_reserves(words_of(minima))[0]
    for changed in range(30):
        other = [each + (which == changed) for which, each in enumerate(minima)]
        differ = keys_of_reserves(words_of(other))[0] != before
        assert differ.tolist() == [changed in minima_of_reserve(reserve) for reserve in range(RESERVES)]
    assert prefixes[:-1] == [mix64(reserve << 32 | 7 << 16 | 7) >> 26 for reserve in range(RESERVES - 1)]


def test_a_page_enters_the_reserves_of_its_mask() -> None:
    rng = np.random.default_rng(1)
    words = rng.integers(0, 1 << 64, (5, 8), dtype=np.uint64)
    masks = rng.integers(0, 1 << RESERVES, 5, dtype=np.uint64)
    masks[2] = 0
    keys = keys_of_reserves(words).tolist()
    want = [
        (row, keys[row][reserve])
        for row in range(5)
        for reserve in range(RESERVES)
        if int(masks[row]) >> reserve & 1
    ]
    rows, entered = entries_of_reserves(words, masks)
    assert list(zip(rows.tolist(), entered.tolist(), strict=True)) == want
    assert all(len(each) == 0 for each in entries_of_reserves(words[:, :1], masks * np.uint64(0)))


def test_the_youngest_that_stayed_out_is_known_until_it_is_gone() -> None:
    rng = np.random.default_rng(3)
    keys = rng.integers(0, 4000, (3000, PAIRS), dtype=np.uint64) << np.uint64(40)
    masks = rng.integers(0, 1 << PAIRS, 3000, dtype=np.uint64)
    stayed_out, youngest, first = nobody(), dict[int, int](), 0
    for start in range(0, 3000, 500):
        some = slice(start, start + 500)
        for number, (own, mask) in enumerate(
            zip(keys[some].tolist(), masks[some].tolist(), strict=True), start
        ):
            youngest |= {key: number for table, key in enumerate(own) if mask >> table & 1}
        stayed_out = with_anchors(stayed_out, keys[some], masks[some], np.arange(start, start + 500), first)
        for oldest in (first, start + 400):
            want = [any(youngest.get(key, -1) >= oldest for key in own) for own in keys.tolist()]
            assert looking_further(stayed_out, keys, oldest).tolist() == want
        assert 2 * stayed_out.size <= len(stayed_out.keys) + 2
        first = start
    assert len(stayed_out.keys) <= 1 << 14, "what is gone takes no room"
    assert not looking_further(nobody(), keys, 0).any()


def test_a_superseded_anchor_is_in_the_pairs_it_was_not_kept_out_of_and_in_the_reserves_it_entered() -> None:
    keys = np.array([[10, 20, 1030, 1040], [10, 21, 1030, 1041]], np.uint64)  # two pairs and two reserves
    crowded = CrowdedBuckets(np.array([10, 20, 1030, 1041], np.uint64), np.array([5, 6, 7, 8]))
    masks = np.array([0b0101, 0b1000], np.uint64)
    buckets, ends = crowded.of(keys, masks, 2)
    assert buckets.tolist() == [6, 7, 5, 8]
    assert ends.tolist() == [0, 2, 4]


@pytest.mark.parametrize("cap", [1, 128])
def test_a_page_meets_another_in_the_buckets_of_its_mask_alone(cap: int) -> None:
    rule = Rule(VerdictOptions(bucket_cap=cap), SCHEME)
    rng = np.random.default_rng(cap)
    content = rng.bytes(24) + (900).to_bytes(8, "little")
    for _ in range(150):
        one = rng.integers(0, 100, 30)
        two = np.where(rng.random(30) < 0.4, one, one + 1000)
        out, entered = rng.integers(0, 1 << PAIRS), rng.integers(0, 1 << RESERVES)
        mask = int(out) | int(entered) << PAIRS if rng.random() < 0.8 else (1 << PAIRS) - 1
        shared = {pair for pair, minima in enumerate(EVERY_PAIR) if all(one[at] == two[at] for at in minima)}
        in_first = any(not mask >> pair & 1 for pair in shared if pair < PAIRS)
        further = any(mask >> pair & 1 for pair in shared if pair < PAIRS)
        in_reserve = any(mask >> pair & 1 for pair in shared if pair >= PAIRS)
        first, second = (
            PairPage(Status.READY, 3, content + packed_minima(minima.tolist()).to_bytes(64, "little"))
            for minima in (one, two)
        )
        verdict = judge_pair(first._replace(skipped=mask), second, rule, same_url=False)
        met = in_first or (further and in_reserve)
        assert verdict == (Verdict.DUPLICATE if met else Verdict.UNIQUE)
        assert judge_pair(first._replace(skipped=mask), second, rule, same_url=True) == Verdict.RECRAWL


def test_masks_that_no_anchor_can_have_are_refused(tmp_path: Path) -> None:
    pages = templates(1, 100)
    entries = entries_of(pages, 1)
    options = VerdictOptions(bucket_cap=2)
    state, genesis = open_state(tmp_path / "state", options, memory=1 << 20, generation=64)
    try:
        judge = Judge(state, genesis)
        decisions = judge.decide(entries).record()
        assert decisions.skipped
        row, _ = decisions.skipped[0]
        resort = 1 << PAIRS + LAST_RESORT
        impossible = [
            *(0, -1, 1 << BUCKETS, 1 << BUCKETS | 1),
            1 << PAIRS,  # in a reserve, in place of no pair
            1 | 3 << PAIRS,  # in two, in place of one
            resort,
            1 | resort,  # in the last resort, in place of one pair
            511 | 1 << PAIRS | resort,  # and beside a reserve
        ]
        for mask in impossible:
            wrong = msgspec.structs.replace(decisions, skipped=[(row, mask), *decisions.skipped[1:]])
            with pytest.raises(StateError, match=f"row {row} skipped buckets {mask:#x}"):
                judge.apply(entries, wrong)
        judge.apply(entries, decisions)
    finally:
        state.close()
